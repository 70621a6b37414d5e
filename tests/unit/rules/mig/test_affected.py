"""Who is in the way of a change."""

from collections.abc import Sequence

from msgspec.structs import replace

from nodeagent.model.allocation import Allocation, PodIdentity
from nodeagent.model.gpu import Gpu
from nodeagent.model.ids import DeviceId, DeviceUuid, ResourceName
from nodeagent.model.journal import Binding, FractionTable, GpuFraction, PreparedClaim, PreparedDevice
from nodeagent.model.mig import Write, WriteKind
from nodeagent.model.telemetry import ProcessSample
from nodeagent.rules.mig.affected import describe_in_the_way, find_in_the_way, list_affected, list_busy, list_claimants
from tests.support.gpus import gpu_uuid, make_gpu, mig_uuid

GPU = make_gpu(0, mig=["3g.40gb", "1g.10gb", "1g.10gb"])
"""Its instances are 7, 8 and 9."""
ALL: tuple[DeviceUuid, ...] = (GPU.uuid, *(device.uuid for device in GPU.mig_devices))


def held(number: int, *devices: str, pod: str = "") -> Allocation:
    identity = PodIdentity(namespace="ns", name=pod, uid=f"uid-{pod}") if pod else None
    return Allocation(
        number=number,
        resource=ResourceName("nvidia.com/mig-1g.10gb"),
        devices=tuple(DeviceId(device) for device in devices),
        since_seconds=0.0,
        pod=identity,
        container="c" if pod else "",
    )


def affected(*writes: Write, gpu: Gpu = GPU) -> Sequence[str]:
    return list_affected(gpu, writes)


def test_an_instance_takes_its_devices_away_and_no_others() -> None:
    assert affected(Write(kind=WriteKind.CREATE), Write(kind=WriteKind.CREATE_COMPUTE, instance=8)) == ()
    assert affected(Write(kind=WriteKind.DESTROY, instance=8)) == (mig_uuid(0, 1),)
    assert affected(Write(kind=WriteKind.DESTROY_COMPUTE, instance=9, compute=0)) == (mig_uuid(0, 2),)
    assert affected(Write(kind=WriteKind.DESTROY_COMPUTE, instance=9, compute=1)) == ()


def test_the_mode_takes_all_of_the_gpu_away() -> None:
    for kind in (WriteKind.MODE_ON, WriteKind.MODE_OFF, WriteKind.RESET):
        assert affected(Write(kind=kind)) == ALL
    assert affected(Write(kind=WriteKind.MODE_ON), gpu=make_gpu(1)) == (make_gpu(1).uuid,)


def process(pid: int, instance: int | None = None) -> ProcessSample:
    return ProcessSample(pid=pid, gpu_instance_id=instance, compute_instance_id=None if instance is None else 0)


def test_instances_are_busy_by_those_who_have_them_or_use_them() -> None:
    """A share of a device is a use of it."""
    allocations = [held(1, f"{mig_uuid(0, 1)}::3"), held(2, mig_uuid(1, 0))]
    assert list_busy(GPU, allocations, [process(5, 9), process(6)]) == {8, 9}


def test_those_are_in_the_way_who_have_what_goes() -> None:
    """By pod where that is known; a process of a pod that is told is not told again."""
    allocations = [held(2, mig_uuid(0, 2), pod="b"), held(1, mig_uuid(0, 1), pod="a"), held(3, mig_uuid(0, 1))]
    processes = [process(11, 8), process(12, 8), process(13, 7), process(14), process(15, 99)]
    pods = {11: "uid-a", 12: "uid-other"}
    found = find_in_the_way(GPU, (mig_uuid(0, 1),), allocations, processes, pods)
    assert [one.name for one in found] == ["ns/a (c)", "allocation 3", "process 12"]
    assert [one.pid for one in found] == [None, None, 12]
    whole = find_in_the_way(GPU, ALL, [], processes, {})
    assert [one.pid for one in whole] == [11, 12, 13, 14, 15]
    assert find_in_the_way(replace(GPU, mig=None), (GPU.uuid,), [], [process(14)], {})


def test_those_who_have_parts_are_in_the_way_of_the_whole() -> None:
    """A GPU that is cut has none."""
    pod = PodIdentity(namespace="ns", name="a", uid="uid-a")
    part = GpuFraction(gpu=GPU.uuid, cores=10, memory_bytes=1)
    binding = Binding(number=3, reservations=(), pod=pod, container="c", parts=(part,), since_seconds=0.0)
    parts = FractionTable(bindings={3: binding})
    assert [one.name for one in find_in_the_way(GPU, ALL, [], [], {}, parts)] == ["ns/a (c)"]
    assert find_in_the_way(GPU, (mig_uuid(0, 1),), [], [], {}, parts) == ()


def test_many_are_counted() -> None:
    """A line has room for a few names."""
    found = find_in_the_way(GPU, ALL, [], [process(pid) for pid in (1, 2, 3, 4, 5)], {})
    assert describe_in_the_way(found[:2]) == "process 1, process 2"
    assert describe_in_the_way(found) == "process 1, process 2, process 3 and 2 more"


def test_claims_are_in_the_way_of_what_they_have() -> None:
    """Not of what is made for them, which goes with them, and not of other GPUs."""

    def claim(uid: str, gpu: int, *, is_made: bool = False) -> PreparedClaim:
        device = PreparedDevice(requests=("gpu",), pool="n", device="gpu-0", uuid=gpu_uuid(gpu), is_made=is_made)
        return PreparedClaim(uid=uid, namespace="ml", name=f"claim-{uid}", devices=(device,), since_seconds=0.0)

    claims = (claim("b", 0), claim("a", 1), claim("c", 0, is_made=True))
    assert [one.name for one in list_claimants((gpu_uuid(0),), claims)] == ["claim ml/claim-b"]
    assert list_claimants((), claims) == ()
