"""Who holds what, as rows."""

from msgspec.structs import replace

from nodeagent.components.allocations.roles.grants import Ended
from nodeagent.components.allocations.tabulate import (
    FAULTED_MAX,
    tabulate_faulted,
    tabulate_history,
    tabulate_living,
    tabulate_receipts,
)
from nodeagent.model.allocation import AllocationRow, AllocationTable, PodIdentity
from nodeagent.model.ids import DeviceId, GpuUuid
from nodeagent.rules.receipts import HeldGpu, Receipt, SeenFault, Verdict
from nodeagent.rules.signals import Severity
from tests.support.allocations import make_entry
from tests.support.gpus import gpu_uuid, make_gpu, make_inventory, mig_uuid
from tests.support.journals import make_seen


def test_living_allocations_are_rows_oldest_first() -> None:
    named = make_entry(2, "b", pod="train", since_seconds=1.0).allocation
    forgotten = make_entry(3, "c", pod="old", since_seconds=0.5, forgotten=True).allocation
    by_uid = replace(named, number=4, pod=PodIdentity(namespace="", name="", uid="u-1"), since_seconds=9.0)
    fresh = make_entry(1, "a", since_seconds=5.0).allocation
    rows = tabulate_living(AllocationTable(allocations=(fresh, named, forgotten, by_uid)))
    assert rows[1] == AllocationRow(
        number=2,
        resource="nvidia.com/gpu",
        devices=("GPU-b",),
        namespace="team",
        pod="train",
        container="main",
        since_seconds=1.0,
        until_seconds=None,
        state="held",
        source="journal",
    )
    assert [(row.pod, row.state) for row in rows] == [
        ("old", "forgotten by the kubelet"),
        ("train", "held"),
        ("", "handed out"),
        ("u-1", "held"),
    ]


def test_history_is_rows_newest_first() -> None:
    """What ended last is read first, with how it ended."""
    history = [
        Ended(allocation=make_entry(number, "a").allocation, until_seconds=10.0 * number, why="given back")
        for number in (1, 2)
    ]
    assert [(row.number, row.until_seconds, row.state) for row in tabulate_history(history)] == [
        (2, 20.0, "given back"),
        (1, 10.0, "given back"),
    ]


def receive(*devices: str, faults: tuple[SeenFault, ...] = (), pod: PodIdentity | None = None) -> Receipt:
    """The receipt of these devices, on a node with the GPUs 0 and 1; GPU 0 has a MIG device."""
    held = replace(make_entry(1, "a").allocation, devices=tuple(map(DeviceId, devices)), pod=pod)
    inventory = make_inventory([make_gpu(0, mig=["1g.10gb"]), make_gpu(1)])
    ended = Ended(allocation=held, until_seconds=9.0, why="given back", faults=faults)
    (receipt,) = tabulate_receipts([ended], inventory)
    return receipt


def test_a_receipt_is_a_row_with_gpus_faults_and_a_verdict() -> None:
    faults = (make_seen(31, severity=Severity.WARN), make_seen(79))
    receipt = receive(f"{gpu_uuid(1)}::2", faults=faults, pod=PodIdentity(namespace="team", name="train", uid="u"))
    assert receipt == Receipt(
        number=1,
        resource="nvidia.com/gpu",
        devices=(f"{gpu_uuid(1)}::2",),
        namespace="team",
        pod="train",
        container="",
        since_seconds=0.0,
        until_seconds=9.0,
        state="given back",
        source="journal",
        pod_uid="u",
        gpus=(HeldGpu(uuid=gpu_uuid(1), index=1),),
        verdict=Verdict.HARDWARE,
        faults=faults,
    )
    assert receive(gpu_uuid(0)).pod_uid == ""


def test_a_receipt_names_each_gpu_once() -> None:
    """The GPU of a MIG device; what is gone as it was given out, with its faults' index; no device of another kind."""
    mig, gone, lost = mig_uuid(0, 0), gpu_uuid(7), "MIG-gone"
    of_gone = replace(make_seen(79), gpu=gone, index=7)
    of_switch = replace(make_seen(11), gpu=GpuUuid(""), index=-1)
    receipt = receive(mig, gpu_uuid(0), gone, lost, "DEV-fpga-0", faults=(of_gone, of_switch))
    assert [(one.uuid, one.index) for one in receipt.gpus] == [(gpu_uuid(0), 0), (gone, 7), (lost, None)]
    held = make_entry(1, "a").allocation
    (early,) = tabulate_receipts([Ended(allocation=held, until_seconds=9.0, why="given back")], None)
    assert early.gpus == (HeldGpu(uuid="GPU-a", index=None),)


def test_receipts_are_newest_first() -> None:
    history = [
        Ended(allocation=make_entry(number, "a").allocation, until_seconds=10.0 * number, why="given back")
        for number in (1, 2)
    ]
    assert [receipt.number for receipt in tabulate_receipts(history, None)] == [2, 1]


def test_of_faulted_holders_the_newest_are_told() -> None:
    """However long the history is, and whichever way it is ordered; holders without a fault are left out."""
    count = FAULTED_MAX + 2
    ended = [
        Ended(allocation=make_entry(at, "a").allocation, until_seconds=float(at), why="", faults=(make_seen(),))
        for at in range(1, count)
    ]
    plain = Ended(allocation=make_entry(count, "a").allocation, until_seconds=float(count), why="")
    assert [one.number for one in tabulate_faulted([plain, *ended], None)] == list(range(count - 1, 1, -1))
