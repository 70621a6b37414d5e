"""The published amounts of a device: capacities and counters, by the names of the vendor's DRA driver."""

import re
from collections.abc import Iterator, Mapping
from typing import Final

from nodeagent.config.sections.claims import BY_MEMORY
from nodeagent.model.gpu import Gpu, MigDevice
from nodeagent.model.slices import Capacity, CapacityPolicy, CounterSet
from nodeagent.rules.claims.naming import MigPlace, NamedDevice, list_places, name_gpu

CORES: Final = 100
MIB: Final = 1 << 20


def describe_capacity(device: NamedDevice, *, on_demand: bool) -> dict[str, Capacity]:
    """The capacity of a device for a single claim; for GPUs that are cut on demand, the most possible."""
    if device.is_gpu:
        found = count_most(device.gpu) if on_demand else {"memory": device.gpu.memory_total_bytes}
    elif device.place is not None and on_demand:
        found = count_place(device.place)
    else:
        assert device.mig is not None
        found = _count_instance(device.mig) | dict(_list_slots(device.mig))
    return {name: Capacity(value=value) for name, value in found.items() if value or name != "memory"}


def describe_shares(device: NamedDevice, share_by: str = BY_MEMORY) -> dict[str, Capacity]:
    """The capacity of a GPU that claims divide among themselves, by the setting `claims.share_by`."""
    whole = device.gpu.memory_total_bytes // MIB * MIB
    default, least = (whole, MIB) if share_by == BY_MEMORY else (0, 0)
    shares = {
        "memory": Capacity(value=whole, share=CapacityPolicy(default=default, least=least, step=MIB, most=whole)),
        # A claim without a request for compute uses the compute that other claims leave.
        "cores": Capacity(value=CORES, share=CapacityPolicy(default=0, least=0, step=1, most=CORES)),
    }
    if share_by.isdigit():
        most = int(share_by)
        shares["shares"] = Capacity(value=most, share=CapacityPolicy(default=1, least=1, step=1, most=most))
    return shares


def can_be_shared(device: NamedDevice) -> bool:
    """Whether the device is a GPU with memory to divide."""
    return device.is_gpu and device.gpu.memory_total_bytes >= 2 * MIB


def count_place(place: MigPlace) -> dict[str, int]:
    """The resources of a MIG device at a place."""
    profile = place.profile
    return {
        "memory": profile.memory_mib * MIB,
        "multiprocessors": profile.multiprocessor_count,
        "copyEngines": profile.copy_engine_count,
        "decoders": profile.decoder_count,
        "encoders": profile.encoder_count,
        "jpegEngines": profile.jpeg_count,
        "ofaEngines": profile.ofa_count,
    }


def count_most(gpu: Gpu) -> dict[str, int]:
    """The most of each resource that a MIG device on this GPU can have: the amounts to divide."""
    most: dict[str, int] = {}
    for place in list_places(gpu):
        for name, value in count_place(place).items():
            most[name] = max(value, most.get(name, 0))
    return most


def _count_instance(mig: MigDevice) -> dict[str, int]:
    has = mig.attributes
    return {
        "memory": has.memory_mib * MIB,
        "multiprocessors": has.multiprocessor_count,
        "copyEngines": has.shared_copy_engine_count,
        "decoders": has.shared_decoder_count,
        "encoders": has.shared_encoder_count,
        "jpegEngines": has.shared_jpeg_count,
        "ofaEngines": has.shared_ofa_count,
    }


def _list_slots(mig: MigDevice) -> Iterator[tuple[str, int]]:
    if mig.placement_start is not None:
        for slot in range(mig.placement_start, mig.placement_start + (mig.placement_size or 1)):
            yield f"memorySlice{slot}", 1


_HUMP: Final = re.compile(r"(?=[A-Z])")


def count_gpu(gpu: Gpu) -> CounterSet:
    """The counters of a whole GPU."""
    ends = (place.start + place.profile.placement_size for place in list_places(gpu))
    return _make_set(gpu, count_most(gpu), range(max(ends, default=0)))


def count_need(device: NamedDevice) -> CounterSet:
    """The counters that a device consumes: the whole GPU's, or those of the MIG device's place."""
    place = device.place
    if place is None:
        return count_gpu(device.gpu)
    return _make_set(device.gpu, count_place(place), range(place.start, place.start + place.profile.placement_size))


def _make_set(gpu: Gpu, amounts: Mapping[str, int], slots: range) -> CounterSet:
    """A set of counters under the names of the vendor's DRA driver."""
    counters = {_HUMP.sub("-", name).lower(): value for name, value in amounts.items() if value}
    return CounterSet(
        name=f"{name_gpu(gpu)}-counter-set", counters=counters | {f"memory-slice-{slot}": 1 for slot in slots}
    )
