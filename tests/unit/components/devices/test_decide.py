"""What follows from a look at the host."""

from collections.abc import Sequence

from nodeagent.components.devices.decide import (
    Findings,
    JudgedDevice,
    decide_conditions,
    find_holders,
    look_at,
    plan_paths,
    plan_scan,
    plan_table,
)
from nodeagent.config.sections.devices import DeviceClass
from nodeagent.model.allocation import Allocation, AllocationTable, PodIdentity
from nodeagent.model.devices import HostDevices, ScanRequest, Standing
from nodeagent.model.ids import DeviceId, ResourceName
from nodeagent.rules.devices.group import render_id
from tests.support.devices import make_class, make_host, make_node

THING = make_class(nodes=["/dev/x*"])
X0, X1 = render_id("example.com/thing", "x0"), render_id("example.com/thing", "x1")
DUE = Findings(is_due=(ResourceName("example.com/thing"),))
"""A look whose time has come."""
POD = PodIdentity(namespace="a", name="b")


def hold(*devices: str, pod: PodIdentity | None = POD, resource: str = "example.com/thing") -> Allocation:
    return Allocation(
        number=7,
        resource=ResourceName(resource),
        devices=tuple(map(DeviceId, devices)),
        since_seconds=0.0,
        pod=pod,
        container="c",
    )


def look(
    host: HostDevices,
    known: dict[DeviceId, JudgedDevice] | None = None,
    held: Sequence[Allocation] = (),
    one: DeviceClass = THING,
    findings: Findings = DUE,
) -> dict[DeviceId, JudgedDevice]:
    holders = find_holders(AllocationTable(allocations=tuple(held)), [ResourceName(one.resource or "")])
    return look_at([one], host, known or {}, findings, holders, 2)


def test_what_is_wished_is_what_classes_need() -> None:
    """Paths of those that have some; classes of sysfs or the whole bus for those that have none."""
    classes = [THING, make_class("a.com/b", sysfs_class="video4linux"), make_class("a.com/c", pci_vendor="0x8086")]
    assert plan_scan(classes[:1]) == ScanRequest(patterns=("/dev/x*",))
    assert plan_scan(classes) == ScanRequest(patterns=("/dev/x*",), sysfs_classes=("video4linux",), is_pci=True)
    assert plan_scan([make_class(nodes=["/dev/x"], sysfs_class="drm", extra_nodes=["/dev/c"])]) == ScanRequest(
        patterns=("/dev/x", "/dev/c")
    )
    assert plan_scan([make_class(vfio=True)]) == ScanRequest(
        patterns=("/dev/vfio/[0-9]*", "/dev/vfio/vfio"), has_all_functions=True
    )
    beside = make_class(nodes=["/dev/x"], companion_nodes=["/dev/mei*"], links=["/dev/by/*"])
    assert plan_scan([beside]) == ScanRequest(patterns=("/dev/x", "/dev/mei*"), links=("/dev/by/*",))
    assert plan_scan([make_class(usb_vendor="0x1209")]) == ScanRequest(patterns=("/dev/bus/usb/[0-9]*/[0-9]*",))


def test_a_device_that_is_gone_is_remembered_while_somebody_has_it() -> None:
    before = look(make_host("/dev/x0", "/dev/x1"))
    gone = look(make_host("/dev/x1"), before, [hold(f"{X0}::3")])
    assert (gone[X0].device.standing, gone[X1].device.standing) == (Standing.GONE, Standing.HEALTHY)
    table = plan_table([THING], make_host("/dev/x1"), gone)
    assert [device.id for device in table.classes[0].devices] == [X1, X0]
    assert look(make_host("/dev/x1"), gone).keys() == {X1}


def test_a_device_comes_back_by_clean_looks() -> None:
    """Looks that follow at once upon another do not count."""
    host, hidden = make_host("/dev/x0"), make_host()
    gone = look(hidden, look(host), [hold(X0)])
    quick = Findings()
    back = look(host, look(host, gone, [hold(X0)], findings=quick), [hold(X0)], findings=quick)
    assert back[X0].device.standing is Standing.UNHEALTHY
    again = look(host, look(host, back))
    assert again[X0].device.standing is Standing.HEALTHY


def test_everything_that_speaks_against_a_device_is_told() -> None:
    """A node that goes with it, a file of sysfs, its command."""
    one = make_class(nodes=["/dev/x*"], extra_nodes=["/dev/ctl"], health={"sysfs": [{"file": "state", "equals": "on"}]})
    host = make_host("/dev/x0", missing=("/dev/ctl",))
    assert plan_paths([one], host) == ("devices/virtual/x0/state",)
    found = look(host, one=one, findings=Findings({"devices/virtual/x0/state": "off"}, {X0: "probe ended with 1"}))
    assert found[X0].device.reason == (
        "/dev/ctl, which goes with it, is not there; /sys/devices/virtual/x0/state says 'off' instead of 'on'; "
        "probe ended with 1"
    )


def test_conditions_name_the_device_and_who_has_it() -> None:
    """What is gone, what does not work, what is missing, what is unclear."""
    ctl = make_class(nodes=["/dev/x*"], expected=3, group="number")
    host = make_host("/dev/x1", "/dev/xctl")
    there = make_host("/dev/x0", "/dev/x1")
    zero, one = render_id("example.com/thing", "0"), render_id("example.com/thing", "1")
    known = look(there, one=ctl)
    known = look(host, known, [hold(zero)], one=ctl, findings=Findings(commands={one: "it is broken"}))
    held = find_holders(AllocationTable(allocations=(hold(zero),)), [ResourceName("example.com/thing")])
    found = decide_conditions([ctl], plan_table([ctl], host, known), held)
    assert found == {
        "device-gone": {
            zero: "example.com/thing: /dev/x0 is gone while a/b (c) has it; it comes back by itself with its node"
        },
        "device-unhealthy": {one: "example.com/thing: /dev/x1: it is broken"},
        "devices-missing": {"example.com/thing": "example.com/thing: 1 of 3 are there"},
        "devices-unclear": {
            "example.com/thing": (
                "example.com/thing: /dev/xctl ends in no number, so that it belongs to no device; narrow `nodes`"
            )
        },
    }
    nobody = decide_conditions([ctl], plan_table([ctl], host, known), {})
    assert "somebody" in nobody["device-gone"][zero]
    well = decide_conditions([THING], plan_table([THING], there, look(there)), {})
    assert not any(well.values())


def test_a_holder_is_called_by_what_is_known_of_it() -> None:
    """Pod and container, the pod's uid, or the number of the allocation."""
    assert hold(X0).describe_holder() == "a/b (c)"
    assert hold(X0, pod=PodIdentity(namespace="", name="", uid="u1")).describe_holder() == "pod u1 (c)"
    assert hold(X0, pod=None).describe_holder() == "allocation 7"
    bare = Allocation(number=1, resource=ResourceName("r"), devices=(), since_seconds=0.0, pod=POD)
    assert bare.describe_holder() == "a/b"
    assert find_holders(None, []) == {}
    assert find_holders(AllocationTable(allocations=(hold(X0, resource="b.com/c"),)), [ResourceName("r")]) == {}


def test_a_second_class_is_judged_by_its_own_words() -> None:
    other = make_class("a.com/b", nodes=["/dev/y*"])
    host = make_host(make_node("/dev/x0"), make_node("/dev/y0"))
    known = look_at([THING, other], host, {}, Findings(), {}, 2)
    table = plan_table([THING, other], host, known)
    assert [[device.name for device in each.devices] for each in table.classes] == [["/dev/x0"], ["/dev/y0"]]
    assert [each.healthy_count for each in table.classes] == [1, 1]
    assert table.find(X0) is not None
    assert table.find("DEV-none") is None
