"""Who has the GPUs of a daemon, and whose its clients are."""

import pytest

from nodeagent.components.mps.holders import join_names, list_held, name_clients, name_holders, name_others
from nodeagent.model.allocation import Allocation, PodIdentity
from nodeagent.model.ids import DeviceId, ResourceName
from nodeagent.model.journal import Binding, Enforcement, FractionTable, GpuFraction
from nodeagent.model.mps import MpsClient, MpsLimits
from nodeagent.model.ports import ProcessPlace
from nodeagent.rules.mps.daemons import DaemonKind, Wanted
from tests.support.gpus import gpu_uuid

A, B = gpu_uuid(0), gpu_uuid(1)
POD = PodIdentity(namespace="ns", name="train", uid="uid-1")


def allocation(number: int, device: str, pod: PodIdentity | None = None) -> Allocation:
    return Allocation(
        number=number,
        resource=ResourceName("nvidia.com/gpu"),
        devices=(DeviceId(device),),
        since_seconds=0.0,
        pod=pod,
        container="c",
    )


def test_holders_are_those_of_shares_and_of_parts() -> None:
    binding = Binding(
        number=4,
        reservations=(),
        pod=PodIdentity(namespace="ns", name="part", uid="uid-2"),
        container="c",
        parts=(GpuFraction(gpu=A, cores=10, memory_bytes=1),),
        since_seconds=0.0,
    )
    rows = [allocation(1, f"{A}::0", POD), allocation(2, f"{A}::1", POD), allocation(3, A), allocation(5, B)]
    names = name_holders((A,), rows, FractionTable(bindings={4: binding}))
    assert names == ("ns/train (c)", "allocation 3", "ns/part (c)")
    assert name_holders((A,), rows[:1], FractionTable()) == ("ns/train (c)",)


def make_part(number: int, enforcement: Enforcement) -> Binding:
    return Binding(
        number=number,
        reservations=(),
        pod=PodIdentity(namespace="ns", name=f"part-{number}", uid=f"uid-{number}"),
        container="c",
        parts=(GpuFraction(gpu=A, cores=10, memory_bytes=1),),
        since_seconds=0.0,
        enforcement=enforcement,
    )


PARTS = FractionTable(bindings={4: make_part(4, Enforcement.MPS), 5: make_part(5, Enforcement.LIBRARY)})


@pytest.mark.parametrize(
    ("kind", "names"),
    [
        (DaemonKind.CLAIM, ()),
        (DaemonKind.SHARES, ("ns/train (c)", "ns/part-4 (c)", "ns/part-5 (c)")),
        (DaemonKind.PARTS, ("ns/train (c)", "ns/part-5 (c)")),
    ],
)
def test_a_daemon_is_not_started_over_the_head_of_others(kind: DaemonKind, names: tuple[str, ...]) -> None:
    """A claim has its GPUs alone; those whose parts it holds are who it is for."""
    wanted = Wanted(name="x", kind=kind, owner="o", gpus=(A,), limits=MpsLimits())
    assert name_others(wanted, [allocation(1, A, POD)], PARTS) == names


def test_those_who_go_through_a_daemon_have_numbers() -> None:
    """By which it is known when the last of them has ended."""
    assert list_held((A,), [allocation(1, f"{A}::0", POD)], PARTS) == {1: "ns/train (c)", 4: "ns/part-4 (c)"}


def test_many_are_counted() -> None:
    assert join_names(("a", "b")) == "a, b"
    assert join_names(tuple("abcdef")) == "a, b, c, d and 2 more"


def test_clients_are_named_by_their_pods() -> None:
    """By UID where the pod has nothing of ours, and not at all on the host."""
    places = {1: ProcessPlace(pod_uid="uid-1"), 2: ProcessPlace(pod_uid="uid-9")}
    assert name_clients((1, 2, 3), places, [allocation(1, A, POD), allocation(2, B)], FractionTable()) == (
        MpsClient(pid=1, pod="ns/train"),
        MpsClient(pid=2, pod="uid-9"),
        MpsClient(pid=3),
    )
