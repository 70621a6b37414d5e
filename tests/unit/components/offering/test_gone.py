"""Devices that pods hold and the driver no longer lists."""

from nodeagent.components.offering.gone import list_held_gone
from nodeagent.model.allocation import Allocation, AllocationTable, PodIdentity
from nodeagent.model.claims import ReadyClaims
from nodeagent.model.ids import DeviceId, ResourceName
from nodeagent.model.journal import FractionTable, PreparedClaim, PreparedDevice
from tests.support.fractions import make_bound, make_table, part
from tests.support.gpus import gpu_uuid, make_gpu, make_inventory

NODE = make_inventory([make_gpu(0), make_gpu(1)])
TRAIN = PodIdentity(namespace="ns", name="train")


def hold(*devices: str, pod: PodIdentity | None = TRAIN, container: str = "main") -> AllocationTable:
    ids = tuple(DeviceId(device) for device in devices)
    row = Allocation(
        number=4, resource=ResourceName("nvidia.com/gpu"), devices=ids, since_seconds=0.0, pod=pod, container=container
    )
    return AllocationTable(allocations=(row,))


def claim(index: int, *pods: PodIdentity, is_admin: bool = False) -> ReadyClaims:
    uuid = gpu_uuid(index)
    device = PreparedDevice(requests=("r",), pool="n", device="gpu", uuid=uuid, gpu=uuid, is_admin=is_admin)
    prepared = PreparedClaim(uid="u", namespace="ns", name="c", devices=(device,), since_seconds=0.0, pods=pods)
    return ReadyClaims(claims={"u": prepared})


def list_gone(
    allocations: AllocationTable | None = None, parts: FractionTable | None = None, claims: ReadyClaims | None = None
) -> dict[str, str]:
    return list_held_gone(NODE, allocations or AllocationTable(), parts or FractionTable(), claims or ReadyClaims())


def test_what_the_driver_lists_is_not_gone() -> None:
    """Whole, as a replica, as a MIG device; devices of other vendors and ids of other plugins are not the driver's."""
    assert list_gone(hold(gpu_uuid(0), f"{gpu_uuid(1)}::3")) == {}
    assert list_gone(hold("DEV-fpga-0", "nvidia0")) == {}
    assert list_gone(None, make_table(bindings=[make_bound(1, (), part(0, 10, 1))]), claim(1, TRAIN)) == {}
    cut = make_inventory([make_gpu(0, mig=("1g.5gb",))])
    assert list_held_gone(cut, hold(cut.gpus[0].mig_devices[0].uuid), FractionTable(), ReadyClaims()) == {}


def test_a_pod_on_a_gpu_that_is_gone_is_named_with_it() -> None:
    """Each device once, whichever replica of it; a holder whose pod is not known by its record."""
    gone = gpu_uuid(7)
    assert list_gone(hold(gpu_uuid(0), f"{gone}::1", f"{gone}::2", "MIG-x")) == {
        "ns/train (main)": f"ns/train (main) holds {gone}, MIG-x"
    }
    assert list_gone(hold(gone, container="")) == {"ns/train": f"ns/train holds {gone}"}
    assert list_gone(hold(gone, pod=None)) == {"allocation 4": f"allocation 4 holds {gone}"}


def test_fractions_and_claims_of_a_gpu_that_is_gone_are_told_too() -> None:
    """By the pod of the container, or of the claim; who only looks at the device holds nothing."""
    gone = gpu_uuid(7)
    parts = make_table(bindings=[make_bound(1, (), part(7, 10, 1), pod=TRAIN)])
    assert list_gone(None, parts) == {"ns/train (main)": f"ns/train (main) holds {gone}"}
    assert list_gone(None, None, claim(7, TRAIN)) == {"ns/train": f"ns/train holds {gone}"}
    assert list_gone(None, None, claim(7)) == {"claim ns/c": f"claim ns/c holds {gone}"}
    assert list_gone(None, None, claim(7, TRAIN, is_admin=True)) == {}
