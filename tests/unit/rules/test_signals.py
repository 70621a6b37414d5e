"""Whose fault a fault is, and which pods are told."""

from typing import Any

import pytest

from nodeagent.model.allocation import Allocation, AllocationTable, PodIdentity
from nodeagent.model.claims import ReadyClaims
from nodeagent.model.events import GpuFaultReported
from nodeagent.model.ids import DeviceId, PciAddress, ResourceName
from nodeagent.model.journal import Binding, FractionTable, GpuFraction, PreparedClaim, PreparedDevice
from nodeagent.rules.signals import (
    ENDED_SECONDS,
    Hold,
    Holders,
    Severity,
    choose_told,
    find_severity,
    follow_holders,
    has_nameless,
    list_holds,
)
from tests.support.gpus import gpu_uuid, mig_uuid

CRITICAL, WARN, USER = Severity.CRITICAL, Severity.WARN, Severity.USER
GPU, OTHER = gpu_uuid(0), gpu_uuid(1)


def make_fault(number: int = 79, **changes: Any) -> GpuFaultReported:
    fields: dict[str, Any] = {"gpu": GPU, "index": 0, "devices": (GPU,)} | changes
    return GpuFaultReported(number=number, name="a fault", address=PciAddress("0000:10:00.0"), **fields)


def make_pod(name: str, uid: str | None = None) -> PodIdentity:
    return PodIdentity(namespace="ml", name=name, uid=f"uid-{name}" if uid is None else uid)


def make_table(*held: tuple[PodIdentity | None, str]) -> AllocationTable:
    return AllocationTable(
        allocations=tuple(
            Allocation(
                number=number,
                resource=ResourceName("nvidia.com/gpu"),
                devices=(DeviceId(device),),
                since_seconds=0.0,
                pod=pod,
            )
            for number, (pod, device) in enumerate(held)
        )
    )


@pytest.mark.parametrize(
    ("number", "holders", "severity"),
    [
        (13, 1, USER),
        (31, 1, USER),
        (43, 1, USER),
        (45, 1, USER),
        (31, 2, WARN),
        *((number, 5, CRITICAL) for number in (48, 62, 63, 64, 74, 79, 94, 95, 109, 119, 120, 140)),
        (69, 1, WARN),
        (999, 1, WARN),
    ],
)
def test_severity_follows_the_number(number: int, holders: int, severity: Severity) -> None:
    """A program's fault on a GPU of several pods names nobody."""
    assert find_severity(make_fault(number), holders) is severity


def test_a_switch_is_as_bad_as_the_driver_says() -> None:
    """An SXid is no program's fault."""
    switch = {"gpu": "", "index": -1}
    assert find_severity(make_fault(31, **switch, is_fatal=True), 1) is CRITICAL
    assert find_severity(make_fault(31, **switch), 1) is WARN


def test_holders_come_by_every_way() -> None:
    """Whole devices and replicas, fractions, claims; not monitors, and nobody without name and uid."""
    allocations = make_table(
        (make_pod("whole"), GPU),
        (make_pod("shared"), f"{GPU}::3"),
        (None, OTHER),
        (make_pod("early", uid=""), OTHER),
        (PodIdentity(namespace="", name="", uid="u"), OTHER),
    )
    part = GpuFraction(gpu=OTHER, cores=30, memory_bytes=1)
    binding = Binding(
        number=9, reservations=(8,), pod=make_pod("part"), container="main", parts=(part,), since_seconds=0.0
    )
    mig = mig_uuid(1, 0)
    devices = (
        PreparedDevice(requests=("r",), pool="p", device="gpu-0", uuid=GPU, gpu=GPU),
        PreparedDevice(requests=("r",), pool="p", device="gpu-1-mig", uuid=mig, gpu=OTHER),
        PreparedDevice(requests=("r",), pool="p", device="gpu-1", uuid=OTHER, gpu=OTHER, is_admin=True),
    )
    claim = PreparedClaim(
        uid="c", namespace="ml", name="claim", devices=devices, since_seconds=0.0, pods=(make_pod("claimant"),)
    )
    found = list_holds(allocations, FractionTable(bindings={9: binding}), ReadyClaims(claims={"c": claim}))
    assert {(hold.pod.name, hold.device) for hold in found} == {
        ("whole", GPU),
        ("shared", GPU),
        ("part", OTHER),
        ("claimant", GPU),
        ("claimant", mig),
    }
    assert list_holds(None, None, None) == frozenset()


@pytest.mark.parametrize(
    ("pod", "device", "is_nameless"),
    [
        (None, GPU, True),
        (make_pod("a", uid=""), f"{GPU}::1", True),
        (PodIdentity(namespace="", name="", uid="u"), GPU, True),
        (make_pod("a"), GPU, False),
        (None, OTHER, False),
    ],
)
def test_only_a_nameless_holder_of_the_device_is_asked_for(
    pod: PodIdentity | None, device: str, *, is_nameless: bool
) -> None:
    """Another device's holder is no matter."""
    assert has_nameless(make_table((pod, device)), {GPU}) is is_nameless
    assert not has_nameless(None, {GPU})


def follow(*changes: tuple[float, set[str]]) -> Holders:
    """The holders of the GPU by the names of pods, after changes at the given times."""
    holders = Holders()
    for at, names in changes:
        holders = follow_holders(holders, frozenset(Hold(pod=make_pod(name), device=GPU) for name in names), at)
    return holders


def tell(holders: Holders, now_seconds: float, number: int = 79, device: str = GPU) -> tuple[list[str], Severity]:
    pods, severity = choose_told(holders, make_fault(number, devices=(device,)), now_seconds)
    return [pod.name for pod in pods], severity


def test_each_present_pod_is_told_once() -> None:
    """However many of the devices it has; nobody is told of another's device."""
    holds = frozenset(Hold(pod=make_pod(name), device=device) for name in "ba" for device in (GPU, OTHER))
    pods, _ = choose_told(Holders(present=holds), make_fault(devices=(GPU, OTHER)), 0.0)
    assert [pod.name for pod in pods] == ["a", "b"]
    assert tell(follow((0.0, {"a"})), 0.0, device=OTHER) == ([], CRITICAL)


def test_a_pod_that_has_just_ended_is_told() -> None:
    """For some seconds, also where another pod has the device by then; forgotten afterwards."""
    holders = follow((0.0, {"a"}), (100.0, set()))
    assert tell(holders, 101.0, 31) == (["a"], USER)
    assert tell(holders, 100.0 + ENDED_SECONDS) == ([], CRITICAL)
    assert tell(follow((0.0, {"a"}), (100.0, {"b"})), 101.0) == (["b", "a"], CRITICAL)
    assert follow((0.0, {"a"}), (100.0, set()), (100.0 + ENDED_SECONDS, set())).ended == {}


def test_a_program_s_fault_is_none_of_a_former_holder() -> None:
    """The present holder's program has the GPU; a pod that comes back holds as before."""
    assert tell(follow((0.0, {"a"}), (100.0, {"b"})), 101.0, 31) == (["b"], USER)
    assert tell(follow((0.0, {"a", "b"}), (1.0, {"b"})), 2.0, 31) == (["b"], USER)
    assert tell(follow((0.0, {"a"}), (1.0, set()), (2.0, {"a"})), 3.0) == (["a"], CRITICAL)
