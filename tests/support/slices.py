"""All that slices are made of, for tests: GPUs behind the door of claims, well unless a test says otherwise."""

from collections.abc import Mapping, Sequence
from typing import Any

from nodeagent.components.slices.plan import Choices, Sight
from nodeagent.model.gpu import Gpu, Inventory
from nodeagent.model.health import DeviceHealth, FoundFault, HealthReport, Verdict
from nodeagent.model.offering import AllocationMode, GpuAllocationMode, Offering
from tests.support.gpus import make_inventory

DRIVER = "gpu.nvidia.com"


def make_doors(
    gpus: Sequence[Gpu], door: AllocationMode = AllocationMode.CLAIMS, *, closed: Sequence[int] = ()
) -> Offering:
    return Offering(
        doors=tuple(
            GpuAllocationMode(
                gpu=gpu.uuid,
                index=gpu.index,
                address=gpu.pci.address,
                door=door,
                wanted=door,
                reason="the default",
                is_open=gpu.index not in closed,
            )
            for gpu in gpus
        )
    )


def make_report(inventory: Inventory, found: Mapping[Any, Sequence[tuple[str, Verdict]]] | None = None) -> HealthReport:
    """A verdict on every device; `found` says by UUID what is wrong."""
    return HealthReport(
        generation=inventory.generation,
        devices=tuple(_judge(inventory, uuid, (found or {}).get(uuid, ())) for uuid in inventory.device_uuids),
    )


def _judge(inventory: Inventory, uuid: str, found: Sequence[tuple[str, Verdict]]) -> DeviceHealth:
    gpu = inventory.find_gpu(uuid)
    assert gpu is not None
    return DeviceHealth(
        device=gpu.uuid if uuid == gpu.uuid else next(one.uuid for one in gpu.mig_devices if one.uuid == uuid),
        gpu=gpu.uuid,
        verdict=found[0][1] if found else Verdict.HEALTHY,
        since_seconds=0.0,
        findings=tuple(FoundFault(key=key, verdict=verdict) for key, verdict in found),
    )


def make_sight(gpus: Sequence[Gpu], *, choices: Mapping[str, Any] | None = None, **fields: Any) -> Sight:
    inventory = fields.pop("inventory", make_inventory(gpus))
    given = {"health": make_report(inventory), "offering": make_doors(gpus), **fields}
    return Sight(inventory=inventory, choices=Choices(driver=DRIVER, **(choices or {})), **given)
