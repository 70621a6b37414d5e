"""Claims for tests, made of as little as a test cares about."""

from collections.abc import Mapping, Sequence

from msgspec.structs import replace

from nodeagent.model.allocation import PodIdentity
from nodeagent.model.claims import ClaimReference, ClaimResult, OpaqueConfig, ResourceClaim
from nodeagent.model.gpu import Gpu, Inventory
from nodeagent.model.offering import AllocationMode, GpuAllocationMode, Offering

DRIVER, POOL = "gpu.nvidia.com", "node-1"
POD = PodIdentity(namespace="ns", name="train", uid="pod-1")
VERSION = "resource.nvidia.com/v1beta1"


def make_reference(uid: str = "claim-1", name: str = "c1") -> ClaimReference:
    return ClaimReference(namespace="ns", name=name, uid=uid)


def make_result(device: str = "gpu-0", request: str = "gpu", **more: object) -> ClaimResult:
    return ClaimResult(**{"request": request, "driver": DRIVER, "pool": POOL, "device": device, **more})  # type: ignore[arg-type]


def make_claim(*results: ClaimResult, uid: str = "claim-1", name: str = "c1", **more: object) -> ResourceClaim:
    known = {"namespace": "ns", "name": name, "uid": uid, "is_allocated": True, "results": results, "pods": (POD,)}
    return ResourceClaim(**{**known, **more})  # type: ignore[arg-type]


def make_config(
    parameters: object = None, *requests: str, source: str = "FromClaim", driver: str = DRIVER
) -> OpaqueConfig:
    return OpaqueConfig(source=source, requests=requests, driver=driver, parameters=parameters)


def gpu_config(sharing: Mapping[str, object] | None = None, kind: str = "GpuConfig") -> dict[str, object]:
    return {"apiVersion": VERSION, "kind": kind} | ({} if sharing is None else {"sharing": sharing})


def behind_claims(gpus: Sequence[Gpu], *, is_open: bool = True) -> Offering:
    return Offering(
        doors=tuple(
            GpuAllocationMode(
                gpu=gpu.uuid,
                index=gpu.index,
                address=gpu.pci.address,
                door=AllocationMode.CLAIMS,
                wanted=AllocationMode.CLAIMS if is_open else AllocationMode.WHOLE,
                reason="a rule",
                is_open=is_open,
            )
            for gpu in gpus
        )
    )


def with_minors(*gpus: Gpu) -> Inventory:
    return Inventory(generation=1, gpus=tuple(replace(gpu, minor=gpu.index) for gpu in gpus))
