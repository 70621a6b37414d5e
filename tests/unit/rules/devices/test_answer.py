"""What a container gets with its devices."""

from pathlib import Path

from msgspec import json

from nodeagent.config.sections.devices import DeviceClass
from nodeagent.model.devices import HostDevice
from nodeagent.model.ids import ResourceName
from nodeagent.model.plugin import ContainerDevice, ContainerMount
from nodeagent.rules.devices.answer import (
    PLACES_MAX,
    find_clash,
    is_named,
    name_devices,
    name_kind,
    name_spec_file,
    place_nodes,
    plan_answer,
    render_spec,
)
from nodeagent.rules.devices.group import plan_classes
from tests.support.devices import make_class, make_host, make_node

THING = ResourceName("example.com/thing")
COUNTED = make_class(nodes=["/dev/[xy]*"], renumber=True, group="number")
KEPT = make_class(nodes=["/dev/x*"])


def devices(*paths: str, group: str = "node") -> tuple[HostDevice, ...]:
    one = make_class(nodes=["/dev/*"], group=group)
    return plan_classes([one], make_host(*paths))[THING].devices


def test_a_node_keeps_its_name_or_is_counted_from_zero() -> None:
    """Each kind of node by itself, in the order of the host's numbers, whatever the order of the question."""
    two = devices("/dev/x3", "/dev/y3", "/dev/x7", "/dev/y7", group="number")
    assert place_nodes(COUNTED, reversed(two)) == (
        ("/dev/x3", "/dev/x0"), ("/dev/y3", "/dev/y0"), ("/dev/x7", "/dev/x1"), ("/dev/y7", "/dev/y1")
    )  # fmt: skip
    assert place_nodes(KEPT, two[:1]) == (("/dev/x3", "/dev/x3"), ("/dev/y3", "/dev/y3"))
    assert place_nodes(COUNTED, devices("/dev/xctl")) == (("/dev/xctl", "/dev/xctl"),)


def test_names_mean_the_same_as_long_as_the_device_exists() -> None:
    """A counted device has a name for each place among the container's."""
    two = devices("/dev/x3", "/dev/x7")
    assert name_devices(KEPT, two) == ("devices.example.com/thing=x3", "devices.example.com/thing=x7")
    assert name_devices(COUNTED, two[1:]) == ("devices.example.com/thing=x7.as.0",)
    assert name_devices(COUNTED, tuple(reversed(two))) == (
        "devices.example.com/thing=x3.as.0", "devices.example.com/thing=x7.as.1"
    )  # fmt: skip


def test_a_specification_defines_every_name_that_is_given_away() -> None:
    """What a name means is what the nodes would be without names."""
    two = devices("/dev/x3", "/dev/x7")
    for each in (KEPT, COUNTED):
        defined = list_spec_nodes(each, two)
        for asked in (two, two[1:]):
            meant = [pair for name in name_devices(each, asked) for pair in defined[name]]
            assert tuple(meant) == place_nodes(each, asked)


def test_a_counted_node_without_number_keeps_its_name_in_specifications_too() -> None:
    spec = json.decode(render_spec(COUNTED, devices("/dev/xctl")))
    assert spec["devices"][0]["containerEdits"]["deviceNodes"][0]["path"] == "/dev/xctl"


def test_names_are_not_used_where_they_cannot_say_it() -> None:
    """Too many places, or devices of several nodes of one kind."""
    assert is_named(KEPT, devices(*(f"/dev/x{n}" for n in range(PLACES_MAX + 1))))
    assert not is_named(COUNTED, devices(*(f"/dev/x{n}" for n in range(PLACES_MAX + 1))))
    assert is_named(COUNTED, devices("/dev/x3", "/dev/y3", group="number"))
    assert is_named(COUNTED, ())
    assert not is_named(COUNTED, devices("/dev/x3", "/dev/x4", group="all"))
    assert not is_named(COUNTED, devices("/dev/x3", "/dev/x4", "/dev/y4", group="number"))


def list_spec_nodes(one: DeviceClass, devices: tuple[HostDevice, ...]) -> dict[str, list[tuple[str, str]]]:
    """The nodes of each name in a specification, on the host and in the container."""
    spec = json.decode(render_spec(one, devices))
    return {
        f"{spec['kind']}={each['name']}": [
            (node["hostPath"], node["path"]) for node in each["containerEdits"]["deviceNodes"]
        ]
        for each in spec["devices"]
    }


def test_a_node_can_have_a_path_of_ones_choice() -> None:
    """As mountPath of generic-device-plugin; the first pattern counts, and a number is the host's or the count."""
    paths = {"/dev/x[0-9]": "/dev/modem", "/dev/x*": "/dev/spare{number}", "/dev/y*": "/opt/y-{number}.port"}
    plain, counted = (make_class(nodes=["/dev/*"], container_paths=paths, renumber=flag) for flag in (False, True))
    four = devices("/dev/x3", "/dev/x10", "/dev/y07", "/dev/z")
    assert [there for _, there in place_nodes(plain, four)] == [
        "/dev/modem",
        "/dev/spare10",
        "/opt/y-07.port",
        "/dev/z",
    ]
    assert [there for _, there in place_nodes(counted, four)] == [
        "/dev/modem",
        "/dev/spare0",
        "/opt/y-0.port",
        "/dev/z",
    ]
    assert plan_answer(plain, four[:1], (), by_name=False).devices[0].container_path == "/dev/modem"
    named = list_spec_nodes(plain, four)
    assert [named[name] for name in name_devices(plain, four[:1])] == [[("/dev/x3", "/dev/modem")]]
    counted_again = make_class(nodes=["/dev/*"], container_paths={"/dev/[xy]*": "/dev/m{number}"}, renumber=True)
    two = devices("/dev/x3", "/dev/y3")
    named = list_spec_nodes(counted_again, two)
    assert is_named(counted_again, two)
    assert [named[name] for name in name_devices(counted_again, two)] == [
        [("/dev/x3", "/dev/m0")], [("/dev/y3", "/dev/m1")]
    ]  # fmt: skip
    assert tuple(pair for name in name_devices(counted_again, two) for pair in named[name]) == place_nodes(
        counted_again, two
    )


def test_two_nodes_for_one_path_are_a_clash() -> None:
    one = make_class(nodes=["/dev/x*"], container_paths={"/dev/x*": "/dev/modem"})
    assert find_clash(one, devices("/dev/x3")) == ""
    assert find_clash(one, devices("/dev/x3", "/dev/x7")) == (
        "/dev/x3 and /dev/x7 would both be /dev/modem in the container; give it {number} in container_paths"
    )


def test_links_to_a_node_are_nodes_in_the_container() -> None:
    """As Intel's plugin shows /dev/dri/by-path; links of other nodes, and others than those of the class, are not."""
    links = {"/dev/dri/by-path/pci-a-render": "/dev/dri/renderD128", "/dev/dri/by-path/pci-b": "/dev/dri/renderD129"}
    host = make_host("/dev/dri/renderD128", links={**links, "/dev/other": "/dev/dri/renderD128"})
    one = make_class(nodes=["/dev/dri/renderD*"], links=["/dev/dri/by-path/*"], environment={"N": "{nodes}"})
    found = plan_classes([one], host)[THING].devices
    pairs = [("/dev/dri/renderD128", "/dev/dri/renderD128"), ("/dev/dri/renderD128", "/dev/dri/by-path/pci-a-render")]
    answer = plan_answer(one, found, (), by_name=False)
    assert [(each.host_path, each.container_path) for each in answer.devices] == pairs
    assert answer.environment == {"N": "/dev/dri/renderD128"}
    assert list(list_spec_nodes(one, found).values()) == [pairs]


def test_kinds_are_what_cdi_takes() -> None:
    """A resource whose last word CDI would not take gets another, of its own."""
    assert name_kind("amd.com/gpu") == "devices.amd.com/gpu"
    odd = name_kind("a.com/1.x")
    assert odd.startswith("devices.a.com/d")
    assert odd != name_kind("a.com/1-x")
    assert name_spec_file("amd.com/gpu") == "nodeagent-device-amd.com-gpu.json"


def test_an_answer_has_nodes_or_names_and_the_rest_in_any_case() -> None:
    """Extra nodes, mounts and variables come with either."""
    one = make_class(
        nodes=["/dev/x*"],
        permissions="rwm",
        mounts=[{"host": "/opt/a"}, {"host": "/opt/b", "container": "/b", "read_only": False}],
        environment={"N": "{count} of {nodes}", "D": "{devices}", "PLAIN": "x{"},
    )
    two = devices("/dev/x3", "/dev/x7")
    by_nodes = plan_answer(one, two, ["/dev/ctl"], by_name=False)
    assert by_nodes.devices == tuple(
        ContainerDevice(container_path=path, host_path=path, permissions="rwm")
        for path in ("/dev/x3", "/dev/x7", "/dev/ctl")
    )
    assert by_nodes.cdi_devices == ()
    assert by_nodes.environment == {"N": "2 of /dev/x3,/dev/x7", "D": "x3,x7", "PLAIN": "x{"}
    assert by_nodes.mounts == (
        ContainerMount(container_path="/opt/a", host_path="/opt/a"),
        ContainerMount(container_path="/b", host_path=str(Path("/opt/b")), read_only=False),
    )
    by_name = plan_answer(one, two, ["/dev/ctl"], by_name=True)
    assert [each.host_path for each in by_name.devices] == ["/dev/ctl"]
    assert by_name.cdi_devices == name_devices(one, two)
    assert (by_name.environment, by_name.mounts) == (by_nodes.environment, by_nodes.mounts)


def test_variables_have_numbers_and_addresses_of_all_devices() -> None:
    """Ascend's runtime reads 0,1; SR-IOV's plugin and KubeVirt give addresses. A node without number adds none."""
    one = make_class("", use="ascend", environment={"ASCEND_VISIBLE_DEVICES": "{indexes}", "PCI": "{pci_addresses}"})
    host = make_host(
        make_node("/dev/davinci10", pci="0000:5e:00.0"),
        make_node("/dev/davinci2", pci="0000:3b:00.0"),
        "/dev/davinci3ctl",
    )
    three = plan_classes([one], host)[ResourceName("huawei.com/Ascend910")].devices
    assert plan_answer(one, three, (), by_name=False).environment == {
        "ASCEND_VISIBLE_DEVICES": "2,10",
        "PCI": "0000:3b:00.0,0000:5e:00.0",
    }
