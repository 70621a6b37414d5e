"""The devices of divisible classes as GPUs to be given in fractions, and what a container is told of its own; pure.

Owns that a device held whole gives nothing: its holder was there before the class was divided.
"""

from collections.abc import Mapping
from typing import Final

from nodeagent.components.fractions.decide import FractionView
from nodeagent.config.sections.fractions import FractionsSettings
from nodeagent.model.allocation import AllocationTable
from nodeagent.model.devices import DeviceClassState, HostDevice, Standing
from nodeagent.model.gpu import Gpu, Inventory, PciIdentity
from nodeagent.model.ids import GpuUuid, PciAddress, ResourceName
from nodeagent.model.journal import Binding
from nodeagent.rules.fractions.profiles import plan_class_profile
from nodeagent.rules.fractions.published import HeldBack
from nodeagent.rules.ids import find_uuid

_MIB: Final = 1 << 20


def plan_class_view(
    state: DeviceClassState, settings: FractionsSettings, lack: str, holders: Mapping[str, str]
) -> FractionView:
    """The devices of a class as GPUs, and why some have nothing to give.

    `lack` is the runtime's, empty without one; `holders` have devices whole, by device.
    """
    gpus = tuple(_plan_gpu(index, device, state.resource) for index, device in enumerate(state.devices))
    refused = {
        GpuUuid(device.id): _refuse(device, state.resource, lack, holders.get(device.id, ""))
        for device in state.devices
    }
    return FractionView(
        inventory=Inventory(generation=0, gpus=gpus),
        gpus=gpus,
        unfit={uuid: reason for uuid, (_, reason) in refused.items()},
        held={uuid: word for uuid, (word, reason) in refused.items() if reason},
        profile=plan_class_profile(settings, state.resource),
        memory_ratio=1.0,
    )


def _plan_gpu(index: int, device: HostDevice, resource: ResourceName) -> Gpu:
    return Gpu(
        index=index,
        uuid=GpuUuid(device.id),
        name=resource,
        pci=PciIdentity(address=device.pci or PciAddress(""), device_id=0),
        numa_node=device.numa_node,
        memory_total_bytes=device.memory_bytes or 0,
        lost=device.reason if device.standing is Standing.GONE else "",
    )


def _refuse(device: HostDevice, resource: ResourceName, lack: str, holder: str) -> tuple[HeldBack, str]:
    """Why a device has nothing to give, in a word and in full; the full text is empty for a usable device."""
    if lack:
        return "node", lack
    if holder:
        return "door", f"{device.name} is held whole by {holder}"
    if device.standing is not Standing.HEALTHY:
        return "unhealthy", f"{device.name}: {device.reason}"
    if not device.memory_bytes:
        reason = f"nothing says how much memory {device.name} has; give memory_mib of the class {resource}"
        return "node", reason
    return "node", ""


def list_whole_holders(table: AllocationTable | None) -> Mapping[str, str]:
    """By device the container that holds it whole."""
    allocations = table.allocations if table is not None else ()
    return {find_uuid(name): each.describe_holder() for each in allocations for name in each.devices}


def plan_told(binding: Binding) -> dict[str, str]:
    """The variables by which a container is told its fractions, in the order of its devices."""
    return {
        "NODEAGENT_PART_DEVICES": ",".join(fraction.gpu for fraction in binding.parts),
        "NODEAGENT_PART_CORES": ",".join(str(fraction.cores) for fraction in binding.parts),
        "NODEAGENT_PART_MEMORY_MIB": ",".join(str(fraction.memory_bytes // _MIB) for fraction in binding.parts),
    }
