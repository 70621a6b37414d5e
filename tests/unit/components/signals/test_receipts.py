"""What a container reads about its GPUs and their faults."""

import json
import re
from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace

from nodeagent.components.signals.receipts import (
    LINES_MAX,
    AgentAction,
    Blame,
    DeviceStanding,
    FaultsFile,
    GpusFile,
    Holding,
    ReceiptGpu,
    count_users,
    judge,
    judge_device,
    list_holdings,
    note_fault,
    number_gpus,
    parse_faults,
    parse_gpus,
    render_file,
    render_time,
)
from nodeagent.model.allocation import Allocation, AllocationTable, PodIdentity
from nodeagent.model.claims import ReadyClaims
from nodeagent.model.gpu import Inventory, StoredGpu
from nodeagent.model.health import DeviceHealth, HealthReport, Verdict
from nodeagent.model.ids import DeviceId, GpuUuid, ResourceName
from nodeagent.model.journal import Binding, Enforcement, FractionTable, GpuFraction, PreparedClaim, PreparedDevice
from nodeagent.model.proof import GpuProofs
from tests.support.gpus import MODEL, gpu_uuid, make_gpu, make_inventory, make_node, mig_uuid
from tests.support.repairs import make_failed, make_passed
from tests.unit.rules.test_signals import make_fault, make_pod

DOCS = Path(__file__).parents[4] / "docs" / "signals.md"
NODE = make_inventory([make_gpu(0), make_gpu(1), make_gpu(2, mig=["1g.10gb", "2g.20gb"])])
GPU, OTHER, SLICE = gpu_uuid(0), gpu_uuid(1), mig_uuid(2, 1)
AT = 1_764_378_123.5
"""2025-11-29T01:02:03.500Z."""
RETURNS = "by itself, after a reboot or a power cycle, once its levels are good"


def number(*devices: str) -> tuple[ReceiptGpu, ...]:
    return number_gpus(devices, NODE)


def make_health(device: str, verdict: Verdict, since: float, returns: str = "") -> HealthReport:
    judged = DeviceHealth(
        device=GpuUuid(device), gpu=GpuUuid(device), verdict=verdict, since_seconds=since, returns=returns,
        reason="Xid 79 of train-0",
    )  # fmt: skip
    return HealthReport(generation=1, devices=(judged,))


def make_allocation(number: int, *devices: str, pod: PodIdentity | None = None, container: str = "") -> Allocation:
    return Allocation(
        number=number, resource=ResourceName("nvidia.com/gpu"), devices=tuple(map(DeviceId, devices)),
        since_seconds=1.0, pod=pod, container=container,
    )  # fmt: skip


def test_every_way_of_giving_has_receipts() -> None:
    """Whole, replica, fraction, claim; not other vendors' devices, and not what a claim only looks at."""
    part = GpuFraction(gpu=GPU, cores=30, memory_bytes=1)
    binding = Binding(
        number=9, reservations=(8,), pod=make_pod("a"), container="main", parts=(part,), since_seconds=0.0,
        cdi_name="nodeagent.io/part=p01",
    )  # fmt: skip
    counted = replace(binding, number=10, cdi_name="x=p02", enforcement=Enforcement.COUNTED)
    devices = (
        PreparedDevice(requests=("r",), pool="p", device="gpu-0", uuid=GPU, gpu=GPU),
        PreparedDevice(requests=("r",), pool="p", device="gpu-2-mig", uuid=SLICE, gpu=gpu_uuid(2)),
        PreparedDevice(requests=("r",), pool="p", device="gpu-1", uuid=OTHER, gpu=OTHER, is_admin=True),
    )
    claim = PreparedClaim(
        uid="c1", namespace="ml", name="claim", devices=devices, since_seconds=0.0,
        pods=(make_pod("x"), make_pod("y")),
    )  # fmt: skip
    allocations = AllocationTable(
        allocations=(
            make_allocation(1, GPU),
            make_allocation(2, f"{OTHER}::3", f"{OTHER}::4"),
            make_allocation(3, "DEV-fpga-0"),
        )
    )
    found = list_holdings(
        allocations, FractionTable(bindings={9: binding, 10: counted}), ReadyClaims(claims={"c1": claim})
    )
    assert found == {
        "a1-3e8": Holding(devices=(GPU,)),
        "a2-3e8": Holding(devices=(OTHER,)),
        "p01": Holding(devices=(GPU,)),
        "c-c1": Holding(devices=(GPU, SLICE), users=2),
    }
    assert count_users(found.values()) == {GPU: 4, OTHER: 1, SLICE: 2}
    assert list_holdings(None, None, None) == {}


def test_a_container_with_two_resources_reads_of_both() -> None:
    """Whichever of the two folders the kubelet mounts; another container of the pod reads of its own."""
    pod = make_pod("a")
    table = AllocationTable(
        allocations=(
            make_allocation(1, GPU, pod=pod, container="main"),
            replace(
                make_allocation(2, SLICE, pod=pod, container="main"), resource=ResourceName("nvidia.com/mig-2g.20gb")
            ),
            make_allocation(3, OTHER, pod=pod, container="sidecar"),
            make_allocation(4, OTHER),
        )
    )
    found = list_holdings(table, None, None)
    assert [found[name].devices for name in sorted(found)] == [(GPU, SLICE), (GPU, SLICE), (OTHER,), (OTHER,)]


def test_devices_that_a_container_had_before_are_not_its_present_ones() -> None:
    """A kubelet that has lost its checkpoint gives a container other devices of the same resource."""
    pod = make_pod("a")
    allocations = (
        make_allocation(1, GPU, pod=pod, container="main"),
        make_allocation(2, OTHER, pod=pod, container="main"),
    )
    found = list_holdings(AllocationTable(allocations=allocations), None, None)
    assert [found[name].devices for name in sorted(found)] == [(GPU,), (OTHER,)]


def test_devices_are_numbered_as_the_container_sees_them() -> None:
    """From 0 in the driver's order, whatever their numbers on the node; nothing where a device is unknown."""
    assert number(SLICE, OTHER) == (
        ReceiptGpu(index=0, uuid=OTHER, gpu=OTHER, name=MODEL, slot="0000:11:00.0"),
        ReceiptGpu(index=1, uuid=SLICE, gpu=gpu_uuid(2), name=MODEL, slot="0000:12:00.0", profile="2g.20gb"),
    )
    assert [each.profile for each in number(SLICE, mig_uuid(2, 0))] == ["1g.10gb", "2g.20gb"]
    assert number(GPU, "GPU-gone") == ()


@pytest.mark.parametrize(
    ("xid", "users", "blame"),
    [(79, 1, Blame.HARDWARE), (79, 5, Blame.HARDWARE), (31, 1, Blame.APPLICATION), (31, 2, Blame.UNKNOWN)],
)
def test_the_blame_is_that_of_the_event(xid: int, users: int, blame: Blame) -> None:
    """The program of one container is no fault of another on the same GPU."""
    (line,) = note_fault((), number(OTHER, GPU), make_fault(xid), {GPU: users}, AT)
    assert (line.kind, line.number, line.devices, line.blame, line.count) == ("xid", xid, (0,), blame, 1)
    assert line.first == line.last == "2025-11-29T01:02:03.500Z"


def test_a_repeat_counts_on() -> None:
    """As the newest line, with the time of the first."""
    gpus = number(GPU, OTHER)
    lines = note_fault((), gpus, make_fault(31), {}, AT)
    lines = note_fault(lines, gpus, make_fault(31, devices=(OTHER,)), {}, AT + 1)
    lines = note_fault(lines, gpus, make_fault(31), {}, AT + 2)
    assert [(line.devices, line.count) for line in lines] == [((1,), 1), ((0,), 2)]
    assert (lines[1].first, lines[1].last) == (render_time(AT), render_time(AT + 2))


def test_the_file_is_bounded() -> None:
    """The oldest faults go."""
    lines = note_fault((), number(GPU), make_fault(1), {}, AT)
    for xid in range(2, LINES_MAX + 3):
        lines = note_fault(lines, number(GPU), make_fault(xid), {}, AT)
    assert [line.number for line in lines] == list(range(3, LINES_MAX + 3))


def test_a_fault_of_another_device_is_not_told() -> None:
    """Neither of another GPU, nor of a neighbour's MIG device on the same GPU."""
    hit = make_fault(31, gpu=gpu_uuid(2), devices=(mig_uuid(2, 0),))
    assert note_fault((), number(SLICE, GPU), hit, {}, AT) == ()
    (whole,) = note_fault((), number(SLICE, GPU), make_fault(79, devices=(gpu_uuid(2), SLICE)), {}, AT)
    assert whole.devices == (1,)


def test_a_switch_hits_all_devices_in_one_line() -> None:
    """As a fault of its own kind."""
    (line,) = note_fault((), number(GPU, OTHER), make_fault(12028, gpu="", devices=(GPU, OTHER), is_fatal=True), {}, AT)
    assert (line.kind, line.devices, line.blame) == ("sxid", (0, 1), Blame.HARDWARE)


def stand(
    health: HealthReport | None, *xids: int, before: DeviceStanding | None = None, node: Inventory = NODE
) -> DeviceStanding:
    """The standing of GPU 0 after faults at `AT`."""
    (gpu,) = number(GPU)
    lines = tuple(note_fault((), (gpu,), make_fault(xid), {}, AT)[0] for xid in xids)
    return judge_device(gpu, lines, before, node, health)


def test_hardware_speaks_against_another_start_until_the_device_has_recovered() -> None:
    """Before the verdict, with it, and without one; a program's fault does not."""
    assert stand(None).restart_here
    assert not stand(None, 79).restart_here
    assert stand(None, 31).restart_here
    assert not stand(make_health(GPU, Verdict.HEALTHY, AT - 5), 79).restart_here
    assert not stand(make_health(GPU, Verdict.SUSPECT, AT + 5), 79).restart_here
    assert stand(make_health(GPU, Verdict.HEALTHY, AT + 5), 79, 31).restart_here
    bad = stand(make_health(GPU, Verdict.UNHEALTHY, AT + 1, RETURNS), 31)
    assert bad == DeviceStanding(
        index=0, uuid=GPU, restart_here=False, agent=AgentAction.WITHHOLDS, since=render_time(AT + 1), returns=RETURNS
    )
    assert stand(make_health(GPU, Verdict.SUSPECT, AT + 9), 31, before=bad) == DeviceStanding(
        index=0, uuid=GPU, restart_here=True, agent=AgentAction.NOTHING
    )


def test_a_device_without_a_verdict_stands_as_before() -> None:
    """As after a start of the agent, until it has looked at the device."""
    bad = stand(make_health(GPU, Verdict.UNHEALTHY, AT, RETURNS))
    assert stand(make_health(GPU, Verdict.UNKNOWN, AT + 9), before=bad) == bad
    assert stand(make_health(OTHER, Verdict.HEALTHY, AT + 9), before=bad) == bad


def test_a_gpu_that_has_vanished_is_withheld() -> None:
    """Under the number that it had."""
    gone = replace(NODE, vanished=(StoredGpu(index=0, uuid=GPU, name=MODEL, address=NODE.gpus[0].pci.address),))
    found = stand(None, node=gone)
    assert (found.index, found.restart_here, found.agent) == (0, False, AgentAction.WITHHOLDS)


def test_nothing_is_written_before_something_has_happened() -> None:
    """Afterwards the file stays, and says how all is well again."""
    gpus, healthy = number(GPU), make_health(GPU, Verdict.HEALTHY, AT)
    assert judge(gpus, (), None, NODE, healthy) is None
    bad = judge(gpus, (), None, NODE, make_health(GPU, Verdict.UNHEALTHY, AT, RETURNS))
    assert bad is not None
    assert [each.restart_here for each in bad.devices] == [False]
    well = judge(gpus, (), bad, NODE, healthy)
    assert well is not None
    assert [(each.restart_here, each.agent) for each in well.devices] == [(True, AgentAction.NOTHING)]


def make_example() -> tuple[GpusFile, FaultsFile]:
    """Two GPUs of a node; the second fell off the bus."""
    gpus = number(OTHER, GPU)
    fault = make_fault(79, devices=(OTHER,))
    lines = note_fault((), gpus, replace(fault, name="the GPU fell off the bus"), {}, AT)
    faults = judge(gpus, lines, None, NODE, make_health(OTHER, Verdict.UNHEALTHY, AT + 0.12, RETURNS))
    assert faults is not None
    return GpusFile(gpus=gpus), faults


def test_the_docs_show_both_files_as_they_are() -> None:
    """Byte for byte; and neither names a pod, a process or the reason of a verdict."""
    for content in make_example():
        text = render_file(content).decode()
        assert f"```json\n{text}```" in DOCS.read_text(encoding="utf-8")
        assert "train" not in text


def test_the_docs_snippet_tells_hardware_from_the_rest(tmp_path: Path) -> None:
    """No file is no fault."""
    (snippet,) = re.findall(r"```python\n(.*?)```", DOCS.read_text(encoding="utf-8"), re.DOTALL)
    defined: dict[str, Any] = {}
    exec(snippet, defined)
    path = tmp_path / "faults.json"
    assert not defined["was_hardware"](path)
    path.write_bytes(render_file(make_example()[1]))
    assert defined["was_hardware"](path)
    program = judge(number(GPU), note_fault((), number(GPU), make_fault(31), {}, AT), None, NODE, None)
    assert program is not None
    path.write_bytes(render_file(program))
    assert not defined["was_hardware"](path)


def test_files_are_read_back() -> None:
    """By the next agent."""
    gpus, faults = make_example()
    assert parse_gpus(render_file(gpus)) == gpus.gpus
    assert parse_faults(render_file(faults)) == faults


@pytest.mark.parametrize("content", [b"", b"{", b'{"gpus": 1, "faults": 1}', b"\xff"])
def test_a_damaged_file_counts_for_none(content: bytes) -> None:
    """It is written anew."""
    assert (parse_gpus(content), parse_faults(content)) == ((), None)


def test_a_file_of_another_version_counts_for_none() -> None:
    """Its keys may mean something else."""
    other = json.dumps({"version": 2, "gpus": [], "devices": [], "faults": []}).encode()
    assert (parse_gpus(other), parse_faults(other)) == ((), None)


def test_the_file_of_the_devices_says_how_and_when_each_was_proven() -> None:
    """Before the container got it; nothing where no proof was passed."""
    proofs = GpuProofs(gpus={gpu_uuid(0): make_passed(1e9), gpu_uuid(1): make_failed()})
    first, second, third = number_gpus(tuple(gpu_uuid(index) for index in range(3)), make_node(3), proofs)
    assert (first.proof, first.proven) == ("quick", "2001-09-09T01:46:40.000Z")
    assert (second.proof, third.proof) == ("", "")
    assert b"proof" not in render_file(GpusFile(gpus=(second, third)))
