"""`devices`: what is accepted, what is refused, and in which words."""

import random
from pathlib import Path

import pytest

from nodeagent.config.compound import plain_section
from nodeagent.config.errors import ConfigurationInvalid
from nodeagent.config.load import decide_settings
from nodeagent.config.reload import decide_reload
from nodeagent.config.schema import Settings
from nodeagent.config.sections.devices import ClassKind, DeviceClass, DevicesSettings, name_class_resources
from nodeagent.config.sections.devices_ready import READY, plant
from nodeagent.config.tree import Node, Origin
from nodeagent.model.ids import ResourceName
from nodeagent.rules.devices.answer import plan_answer, render_spec
from nodeagent.rules.devices.group import plan_classes
from tests.support.devices import make_class, make_host
from tests.unit.config.helpers import tree_of


def load(text: str) -> Settings:
    return decide_settings([tree_of(text)]).settings


def refuse(text: str) -> list[str]:
    with pytest.raises(ConfigurationInvalid) as refused:
        load(text)
    return [str(problem) for problem in refused.value.problems]


@pytest.mark.parametrize("name", READY)
def test_a_ready_made_class_is_a_word(name: str) -> None:
    """What is written beside it outranks what it says."""
    (one,) = load(f"devices:\n  classes:\n    - use: {name}\n").devices.classes
    assert one.resource == READY[name]["resource"]
    (other,) = load(
        f"devices:\n  classes:\n    - {{use: {name}, resource: a.com/b, replicas: 7, renumber: false}}\n"
    ).devices.classes
    assert (other.resource, other.replicas, other.renumber) == ("a.com/b", 7, False)
    assert other.nodes == one.nodes


def test_a_class_is_written_back_as_it_is_read() -> None:
    """`config show` can be pasted."""
    one = make_class("", use="amd-gpu", label="gpus", health={"sysfs": [{"file": "f", "below": 3}]})
    again = ClassKind(DeviceClass).plain(one)
    assert isinstance(again, dict)
    cleaned = {key: value for key, value in again.items() if value is not None}
    cleaned["health"] = {"sysfs": [{"file": "f", "below": 3}]}
    assert make_class(**cleaned) == one
    assert plain_section(DevicesSettings(classes=(one,)))["classes"] == [again]


@pytest.mark.parametrize(
    ("text", "complaint"),
    [
        ("- use: kwm", "test.yaml:3: devices.classes[0].use: value 'kwm' is refused; give kvm, fuse,"),
        (
            "- nodes: [/dev/x]",
            "devices.classes[0].resource: the key is missing; give it, or a ready-made class by `use`",
        ),
        ("- resource: a.com/x", "devices.classes[0].nodes: nothing says which nodes these devices are; give nodes,"),
        (
            "- {resource: a.com/x, nodes: [dev/x]}",
            "devices.classes[0].nodes[0]: value 'dev/x' is refused; give an absolute",
        ),
        ("- {resource: a.com/x, nodes: [/*/x]}", "devices.classes[0].nodes[0]: value '/*/x' is refused"),
        ("- {resource: a.com/x, nodes: [/dev/../x]}", "devices.classes[0].nodes[0]: value '/dev/../x' is refused"),
        (
            "- {resource: x, nodes: [/dev/x]}",
            "devices.classes[0].resource: value 'x' is refused; give a qualified name",
        ),
        (
            "- {use: kvm, permissions: wr}",
            "devices.classes[0].permissions: value 'wr' is refused; give some of the letters",
        ),
        ("- {use: kvm, replicas: 0}", "devices.classes[0].replicas: value '0' is refused"),
        (
            "- {use: kvm, pci_vendor: 8086}",
            "devices.classes[0].pci_vendor: value '8086' is refused; give four hexadecimal",
        ),
        (
            "- {resource: a.com/x, nodes: [/dev/x], pci_devices: ['0x0001']}",
            "devices.classes[0].pci_devices: a device id means a device only together with its vendor; give pci_vendor",
        ),
        (
            "- {resource: a.com/x, vfio: true, nodes: [/dev/vfio/1]}",
            "devices.classes[0].vfio: nodes of VFIO are those of IOMMU groups, under their own names; leave",
        ),
        (
            "- {resource: a.com/x, vfio: true, container_paths: {/dev/vfio/1: /dev/x}}",
            "devices.classes[0].vfio: nodes of VFIO are those of IOMMU groups, under their own names; leave",
        ),
        (
            "- {use: kvm, container_paths: {/dev/kvm: /dev/*}}",
            "devices.classes[0].container_paths./dev/kvm: value '/dev/*' is refused; give an absolute path such as",
        ),
        (
            "- {resource: a.com/x, usb_product: '0x000f'}",
            "devices.classes[0].usb_product: a product means a device only together with its vendor; give usb_vendor",
        ),
        (
            "- {resource: a.com/x, pci_parents: [eth0]}",
            "devices.classes[0].pci_parents[0]: value 'eth0' is refused; give a PCI address such as 0000:3b:00.0, with",
        ),
        ("- {use: kvm, nods: []}", "devices.classes[0].nods: unknown key; did you mean 'nodes'?"),
        ("- kvm", "devices.classes[0]: value 'kvm' is refused; give a mapping of keys"),
        (
            "- {use: kvm, health: {sysfs: [{file: f}]}}",
            "devices.classes[0].health.sysfs[0]: nothing can be judged by it; give either equals or below",
        ),
        ("- {use: kvm, health: {sysfs: [{file: ../f, equals: 1}]}}", "health.sysfs[0].file: value '../f' is refused"),
    ],
)
def test_a_wrong_class_is_refused_with_file_key_value_and_remedy(text: str, complaint: str) -> None:
    problems = refuse(f"devices:\n  classes:\n    {text}\n")
    assert any(complaint in problem for problem in problems), problems
    assert all(problem.startswith("test.yaml:") for problem in problems)


@pytest.mark.parametrize(
    ("first", "second", "complaint"),
    [
        (
            "resource: a.com/x, nodes: [/dev/x*]",
            "resource: a.com/y, nodes: ['/dev/[wx]0']",
            "devices.classes[1].nodes[0]: /dev/[wx]0 of a.com/y and /dev/x* of a.com/x can mean the same node; narrow",
        ),
        (
            "use: kvm",
            "use: kvm, replicas: 2",
            "devices.classes[1].resource: devices.nodeagent.io/kvm is the resource of two classes",
        ),
        (
            "use: kvm, label: x",
            "use: fuse, label: x",
            "devices.classes[1].label: x is the label of devices.nodeagent.io/kvm",
        ),
        (
            "use: kvm, condition: x",
            "use: fuse, condition: x",
            "devices.classes[1].condition: x is the condition of devices.nodeagent.io/kvm",
        ),
        ("use: kvm", "resource: nvidia.com/gpu, nodes: [/dev/x]", "nvidia.com/gpu is already offered by GPUs"),
        (
            "use: kvm",
            "resource: a.com/x, nodes: [/dev/x], companion_nodes: ['/dev/nvidia*']",
            "devices.classes[1].companion_nodes[0]: /dev/nvidia* also means /dev/nvidia[0-9]*, and GPUs of NVIDIA",
        ),
        (
            "use: kvm",
            "resource: a.com/x, nodes: [/dev/nv*]",
            "/dev/nv* also means /dev/nvidia[0-9]*, and GPUs of NVIDIA",
        ),
    ],
)
def test_classes_that_would_meet_are_refused_with_both_names(first: str, second: str, complaint: str) -> None:
    """A node belongs to one class, a resource is offered once."""
    problems = refuse(f"devices:\n  classes:\n    - {{{first}}}\n    - {{{second}}}\n")
    assert any(complaint in problem for problem in problems), problems


@pytest.mark.parametrize(
    ("first", "second"),
    [
        ("use: intel-gpu", "use: amd-gpu"),
        ("use: intel-gpu", "use: intel-gpu-xe"),
        (
            "resource: a.com/x, nodes: [/dev/x*], pci_class: '0x0300'",
            "resource: a.com/y, nodes: [/dev/x*], pci_class: '0x12'",
        ),
        (
            "resource: a.com/x, nodes: [/dev/x*], pci_vendor: '0x8086', pci_devices: ['0x0001']",
            "resource: a.com/y, nodes: [/dev/x*], pci_vendor: '0x8086', pci_devices: ['0x0002']",
        ),
        (
            "resource: a.com/x, nodes: [/dev/x*], pci_drivers: [i915]",
            "resource: a.com/y, nodes: [/dev/x*], pci_drivers: [xe]",
        ),
        (
            "resource: a.com/x, nodes: [/dev/x*], usb_vendor: '0x1209', usb_product: '0x000f'",
            "resource: a.com/y, nodes: [/dev/x*], usb_vendor: '0x1209', usb_product: '0x0010'",
        ),
        ("use: amd-gpu, amd_partitions: [cpx_nps4]", "use: amd-gpu, resource: a.com/y, amd_partitions: [spx_nps1]"),
        (
            "resource: a.com/x, nodes: [/dev/x*], usb_serials: [A1]",
            "resource: a.com/y, nodes: [/dev/x*], usb_serials: [B2]",
        ),
        ("resource: a.com/x, vfio: true, pci_vendor: '0x10de'", "resource: a.com/y, pci_parents: ['*']"),
        ("resource: a.com/x, nodes: [/dev/x*], sysfs_class: a", "resource: a.com/y, nodes: [/dev/x*], sysfs_class: b"),
        ("resource: a.com/x, nodes: [/dev/x*]", "resource: a.com/y, nodes: [/dev/y*]"),
    ],
)
def test_classes_that_something_keeps_apart_may_share_paths(first: str, second: str) -> None:
    """Vendor, class of the function, class in sysfs, or the paths themselves."""
    assert len(load(f"devices:\n  classes:\n    - {{{first}}}\n    - {{{second}}}\n").devices.classes) == 2


def test_a_class_below_another_in_its_pci_class_is_not_apart() -> None:
    """0x03 has in it what 0x0300 means."""
    both = (
        "resource: a.com/x, nodes: [/dev/x], pci_class: '0x03'",
        "resource: a.com/y, nodes: [/dev/x], pci_class: '0x0300'",
    )
    assert (
        "can mean the same node" in refuse("devices:\n  classes:\n" + "".join(f"    - {{{one}}}\n" for one in both))[0]
    )


def test_names_of_gpus_are_taken_in_every_way_they_are_offered() -> None:
    """In parts, by patterns, with another prefix."""
    text = "devices:\n  classes:\n    - {resource: tencent.com/vcuda-core, nodes: [/dev/x]}\n"
    assert len(load(text).devices.classes) == 1
    assert "fractions.core_resource" in refuse(text + "fractions: {enabled: true}\n")[0]
    hami = text.replace("tencent.com/vcuda-core", "hami.io/gpu")
    assert (
        "fractions.share_resource"
        in refuse(hami + "fractions: {enabled: true, profile: hami, share_resource: hami.io/gpu}\n")[0]
    )
    named = "resources: {gpus: [{pattern: '*', name: NAME}]}\n"
    other = text.replace("tencent.com/vcuda-core", "nvidia.com/h100")
    assert "`resources`" in refuse(other + named.replace("NAME", "h100"))[0]
    assert "`resources`" in refuse(other + named.replace("NAME", "nvidia.com/h100"))[0]


def test_the_first_class_waits_for_a_restart_and_others_do_not() -> None:
    """The part that looks after devices is built at the start alone."""
    none, one = Settings(), Settings(devices=DevicesSettings(classes=(make_class("", use="kvm"),)))
    two = Settings(devices=DevicesSettings(classes=(*one.devices.classes, make_class("", use="fuse"))))
    assert [change.path for change in decide_reload(none, one).changed_needs_restart] == ["devices.classes"]
    assert decide_reload(one, two).settings == two
    assert decide_reload(one, none).settings == none


WORDS = (
    "a",
    "a.com/b",
    "/dev/x*",
    "/dev/[",
    "0x8086",
    "true",
    "-1",
    "1e9",
    "",
    "é",
    "/dev/{node}",
    "rw",
    "kvm",
    "null",
)


def make_noise(chance: random.Random, depth: int = 3) -> object:
    """Something that a person may have written, or not."""
    kind = chance.randrange(6)
    if depth == 0 or kind < 3:
        return chance.choice(WORDS)
    if kind == 3:
        return [make_noise(chance, depth - 1) for _ in range(chance.randrange(3))]
    keys = (*DeviceClass.__struct_fields__, "sysfs", "file", "equals", "below", "command", "host", "nonsense")
    return {chance.choice(keys): make_noise(chance, depth - 1) for _ in range(chance.randrange(5))}


def check_noise(count: int, seed: int) -> None:
    chance = random.Random(seed)
    accepted = 0
    for _ in range(count):
        classes = []
        for _ in range(chance.randrange(1, 4)):
            noise = make_noise(chance)
            base = (
                {"use": chance.choice([*READY, "x"])}
                if chance.random() < 0.6
                else {"resource": "a.com/b", "nodes": ["/dev/x"]}
            )
            classes.append({**base, **(noise if isinstance(noise, dict) else {"label": noise})})
        tree = plant({"devices": {"classes": classes}}, Origin("file", str(Path("fuzz.yaml")), 1))  # type: ignore[dict-item]
        settings, problems = judge(tree)
        assert all(problem.startswith("fuzz.yaml:1: devices") for problem in problems)
        assert (settings is None) is bool(problems)
        if settings is not None:
            accepted += 1
            use(settings.devices.classes)
    assert 0 < accepted < count


def judge(tree: Node) -> tuple[Settings | None, list[str]]:
    try:
        return decide_settings([tree]).settings, []
    except ConfigurationInvalid as refused:
        return None, [str(problem) for problem in refused.problems]


HOST = make_host("/dev/kvm", "/dev/x0", "/dev/x7", "/dev/iluvatar3", "/dev/iluvatar12")


def use(classes: tuple[DeviceClass, ...]) -> None:
    """What is accepted can be used: every node once, every device of a name of its own."""
    grouped = plan_classes(classes, HOST)
    devices = [device for each in grouped.values() for device in each.devices]
    assert len({device.id for device in devices}) == len(devices)
    nodes = [node for device in devices for node in device.nodes]
    assert len(set(nodes)) == len(nodes)
    for each in classes:
        own = grouped[ResourceName(each.resource or "")].devices
        render_spec(each, own)
        assert len(plan_answer(each, own, (), by_name=False).devices) == sum(len(device.nodes) for device in own)


def test_whatever_is_written_is_accepted_or_refused_in_words() -> None:
    """Never a traceback, and every complaint has its place."""
    check_noise(300, seed=25)


@pytest.mark.nightly
def test_ten_thousand_classes_are_accepted_or_refused_in_words() -> None:
    check_noise(10_000, seed=26)


PARTS = "  classes:\n    - {resource: a.com/b, nodes: [/dev/b*], divisible: true, memory_mib: 1024}\n"


def test_a_divisible_class_has_resources_of_its_own() -> None:
    settings = load(f"devices:\n{PARTS}")
    (one,) = settings.devices.divisible
    assert name_class_resources(one.resource or "") == ("a.com/b-core", "a.com/b-memory")
    assert settings.gives_fractions
    assert not Settings().gives_fractions
    assert load("fractions: {enabled: true}\n").gives_fractions


@pytest.mark.parametrize(
    ("text", "complaint"),
    [
        ("devices:\n  classes: [{use: kvm, divisible: true}]\n", "leave replicas or divisible out"),
        ("devices:\n  classes: [{use: amd-gpu, memory_mib: 5}]\n", "set divisible: true, or leave memory_mib out"),
        (f"cdi: {{enabled: false}}\ndevices:\n{PARTS}", "set cdi.enabled: true too"),
        (
            f"devices:\n{PARTS}    - {{resource: a.com/b-core, nodes: [/dev/c]}}\n",
            "a.com/b-core is the resource of two",
        ),
        (
            f"fractions: {{enabled: true, core_resource: a.com/b-core}}\ndevices:\n{PARTS}",
            "a.com/b-core is already offered by parts of GPUs (`fractions.core_resource`)",
        ),
    ],
)
def test_what_cannot_be_divided_is_refused(text: str, complaint: str) -> None:
    """With the key and what to do."""
    assert any(complaint in problem for problem in refuse(text)), refuse(text)


def test_the_first_divisible_class_waits_for_a_restart() -> None:
    """The component that gives parts is built at the start; a second class comes with a reload."""
    whole = load("devices:\n  classes: [{use: kvm}]\n")
    divided = load(f"devices:\n{PARTS}    - {{use: kvm}}\n")
    more = load(f"devices:\n{PARTS}    - {{resource: c.com/d, nodes: [/dev/d*], divisible: true}}\n")
    assert [each.path for each in decide_reload(whole, divided).changed_needs_restart] == ["devices.classes"]
    assert decide_reload(divided, more).changed_needs_restart == ()
    assert decide_reload(divided, whole).changed_needs_restart == ()
