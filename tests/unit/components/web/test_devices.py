"""Devices of configured classes wherever people read of them: API, page, `top`, `devices`, doctor, metrics, labels."""

from msgspec.structs import replace

from nodeagent.cli.answers.table import Layout, lay_out
from nodeagent.cli.doctor.check_cluster import check_devices
from nodeagent.cli.node.devices import describe_classes, render_proposals, tabulate_devices
from nodeagent.cli.top.view import build_top, render_top
from nodeagent.components.exporter.families.devices import build_device_families
from nodeagent.components.labeler.node_wide import label_devices
from nodeagent.components.web.api.build import Identity, build_state
from nodeagent.components.web.api.records import StateRecord
from nodeagent.components.web.page.devices import render_devices
from nodeagent.model.allocation import Allocation, AllocationTable, PodIdentity
from nodeagent.model.devices import (
    BlockErrors,
    DeviceClassState,
    DeviceReadings,
    DeviceReadingTable,
    DeviceTable,
    HostDevice,
    Standing,
    Temperature,
)
from nodeagent.model.gpu import Inventory
from nodeagent.model.ids import DeviceId, GpuUuid, ResourceName
from nodeagent.model.journal import FractionTable, GpuFraction
from nodeagent.rules.devices.discover import Proposal
from tests.support.devices import make_class
from tests.support.fractions import make_bound, make_pod
from tests.support.nodes import make_reader
from tests.unit.cli.doctor.healthy_node import HEALTHY

IDENTITY = Identity(version="1", node="n", gpu_source="nvml", pid=1, started_seconds=0.0)
KVM, CAM = ResourceName("devices.nodeagent.io/kvm"), ResourceName("example.com/cam")
ONE = HostDevice(id=DeviceId("DEV-kvm"), name="/dev/kvm", nodes=("/dev/kvm",))
GONE = HostDevice(
    id=DeviceId("DEV-cam"),
    name="/dev/<video0>",
    nodes=("/dev/video0",),
    numa_node=1,
    standing=Standing.GONE,
    reason="its device node is not there",
)
TABLE = DeviceTable(
    classes=(
        DeviceClassState(resource=KVM, replicas=2, devices=(ONE,)),
        DeviceClassState(resource=CAM, devices=(GONE,), problems=("/dev/x is unclear",)),
        DeviceClassState(resource=ResourceName("a.com/none")),
    )
)


READINGS = DeviceReadingTable(
    readings={
        ONE.id: DeviceReadings(
            temperatures=(
                Temperature(sensor="edge", celsius=61.5, critical_celsius=100.0),
                Temperature(sensor="mem", celsius=70.0),
            ),
            power_watts=300.0,
            energy_joules=5.0,
            utilization_ratio=0.5,
            memory_used_bytes=1,
            memory_bytes=2,
            errors=(BlockErrors(block="umc", uncorrected=3, corrected=4),),
        ),
        GONE.id: DeviceReadings(),
    }
)


def hold(number: int, device: str, pod: PodIdentity | None) -> Allocation:
    return Allocation(number=number, resource=KVM, devices=(DeviceId(device),), since_seconds=0.0, pod=pod)


HELD = AllocationTable(
    allocations=(
        hold(1, "DEV-kvm::0", PodIdentity(namespace="a", name="b")),
        hold(2, "DEV-kvm::1", None),
        hold(3, "DEV-cam", PodIdentity(namespace="", name="", uid="u1")),
    )
)


def make_state(table: DeviceTable | None = TABLE) -> StateRecord:
    known = make_reader(Inventory(generation=1), table, HELD)
    return build_state(IDENTITY, known, (), (), (), now_seconds=1.0)


def test_the_record_joins_devices_and_holders() -> None:
    """By share, each pod once; nothing where there is no class."""
    kvm, cam, none = make_state().devices
    assert (kvm.devices[0].holders, kvm.devices[0].shares_held) == (("a/b", "allocation 2"), 2)
    assert (cam.devices[0].holders, cam.problems) == (("pod u1",), ("/dev/x is unclear",))
    assert none.devices == ()
    assert make_state(None).devices == ()


def test_parts_of_a_device_have_holders_and_are_called_counted() -> None:
    """In cores, where shares are told of other classes."""
    bindings = {
        number: make_bound(number, (), GpuFraction(gpu=GpuUuid("DEV-kvm"), cores=30, memory_bytes=1), pod=pod)
        for number, pod in ((1, make_pod("one")), (2, make_pod("two")))
    }
    divided = DeviceTable(classes=(replace(TABLE.classes[0], divisible=True),))
    known = make_reader(Inventory(generation=1), divided, FractionTable(bindings=bindings))
    state = build_state(IDENTITY, known, (), (), (), now_seconds=1.0)
    (record,) = state.devices[0].devices
    assert (record.holders, record.shares_held, record.cores_held) == (("ns/one", "ns/two"), 0, 60)
    page = render_devices(state)
    assert "60 of 100 cores" in page
    assert "parts are counted, not enforced" in page


def test_a_node_without_gpu_is_well_with_its_devices() -> None:
    assert make_state().sentence == "all is well: 2 devices of the configured classes, and no GPU"
    single = DeviceTable(classes=TABLE.classes[:1])
    assert make_state(single).sentence == "all is well: 1 device of the configured classes, and no GPU"


def test_the_page_has_a_row_for_each_and_what_is_wrong() -> None:
    """Nothing where no class is configured; what comes from outside is escaped."""
    page = render_devices(make_state())
    for text in ("/dev/kvm", "2 of 2", "&lt;video0&gt;", "its device node is not there", "a.com/none", "is unclear"):
        assert text in page
    assert "<video0>" not in page
    assert render_devices(make_state(None)) == ""
    assert "No device of a.com/none" in render_devices(make_state(DeviceTable(classes=TABLE.classes[2:])))


def test_the_table_of_a_terminal_has_a_line_for_each() -> None:
    """And under it what keeps devices from being given."""
    classes = make_state().devices
    lines = lay_out(tabulate_devices(classes), Layout(200))
    assert lines[1].split() == [KVM, "/dev/kvm", "healthy", "2", "of", "2", "-", "-", "a/b,", "allocation", "2"]
    assert describe_classes(classes) == [
        "example.com/cam: /dev/x is unclear",
        "example.com/cam: /dev/<video0>: its device node is not there",
        "a.com/none: no device",
    ]


def test_top_shows_them_below_the_gpus() -> None:
    text = render_top(build_top(make_state(), {}), Layout(160), colour=False)
    assert "/dev/kvm" in text
    assert "STANDING" not in render_top(build_top(make_state(None), {}), Layout(160), colour=False)


def test_the_doctor_looks_at_each_class() -> None:
    """A class without devices is worth a word."""
    found = [*check_devices(replace(HEALTHY, agent=make_state()))]
    assert [(each.grade.value, each.found) for each in found] == [
        ("ok", f"{KVM}: 1 works"),
        ("warn", "example.com/cam: /dev/x is unclear; /dev/<video0>: its device node is not there"),
        ("warn", "a.com/none: there is none on this node"),
    ]
    assert [*check_devices(replace(HEALTHY, agent=None))] == []


def test_metrics_have_a_series_for_each_device() -> None:
    """Healthy, gone, shares, shares held."""
    values = {
        (family.name, dict(labels)["id"]): value
        for family in build_device_families(TABLE, HELD, None)
        for labels, value in family.samples
    }
    assert values["nodeagent_device_healthy", "DEV-kvm"] == 1
    assert values["nodeagent_device_healthy", "DEV-cam"] == 0
    assert values["nodeagent_device_gone", "DEV-cam"] == 1
    assert values["nodeagent_device_shares", "DEV-kvm"] == 2
    assert values["nodeagent_device_shares_held", "DEV-kvm"] == 2
    families = [family for family in build_device_families(TABLE, None, DeviceReadingTable()) if family.samples]
    assert [len(family.samples) for family in families] == [2, 2, 2, 2]


def test_metrics_have_the_readings_of_devices_that_have_some() -> None:
    """A value that the kernel does not tell has no series."""
    series = [
        (family.name.removeprefix("nodeagent_device_"), dict(labels[3:]), value)
        for family in build_device_families(TABLE, None, READINGS)[4:]
        for labels, value in family.samples
        if dict(labels)["id"] == "DEV-kvm"
    ]
    assert series == [
        ("temperature_celsius", {"sensor": "edge"}, 61.5),
        ("temperature_celsius", {"sensor": "mem"}, 70.0),
        ("temperature_critical_celsius", {"sensor": "edge"}, 100.0),
        ("power_watts", {}, 300.0),
        ("energy_joules_total", {}, 5.0),
        ("utilization_ratio", {}, 0.5),
        ("memory_used_bytes", {}, 1),
        ("memory_bytes", {}, 2),
        ("errors_total", {"block": "umc", "kind": "corrected"}, 4),
        ("errors_total", {"block": "umc", "kind": "uncorrected"}, 3),
    ]


def test_the_wide_table_has_the_hottest_sensor() -> None:
    known = make_reader(Inventory(generation=1), TABLE, HELD, READINGS)
    classes = build_state(IDENTITY, known, (), (), (), now_seconds=1.0).devices
    assert classes[0].devices[0].readings == READINGS.readings[ONE.id]
    lines = lay_out(tabulate_devices(classes), Layout(300, wide=True))
    assert "TEMPERATURE" in lines[0]
    assert ["70 °C" in line for line in lines[1:3]] == [True, False]


def test_a_label_says_how_many_devices_work() -> None:
    """Also none; nothing for a class without label, or that nobody has looked at yet."""
    classes = [
        make_class(KVM, nodes=["/dev/kvm"], label="kvm"),
        make_class(CAM, nodes=["/dev/v"], label="cam"),
    ]
    assert dict(label_devices(TABLE, classes)) == {"devices.nodeagent.io/kvm": "1", "devices.nodeagent.io/cam": "0"}
    assert dict(label_devices(TABLE, [make_class(KVM, nodes=["/dev/kvm"])])) == {}
    assert dict(label_devices(None, classes)) == {}


def test_proposals_are_ready_to_paste() -> None:
    """One that the configuration has already is there as a comment."""
    kvm = Proposal(use="kvm", resource=KVM, devices=("/dev/kvm",), lines=("- use: kvm",))
    other = Proposal(use="", resource="a.com/x", devices=("/dev/x",), lines=("- resource: a.com/x",), note="name it")
    text = render_proposals((kvm, other), [KVM])
    assert text.splitlines() == [
        "devices:",
        "  classes:",
        f"    # 1 of {KVM}: /dev/kvm",
        "    # the configuration has it already",
        "    # - use: kvm",
        "    # 1 of a.com/x: /dev/x",
        "    # name it",
        "    - resource: a.com/x",
    ]
    assert render_proposals((), []) == "nothing on this host that a class is known for\n"
