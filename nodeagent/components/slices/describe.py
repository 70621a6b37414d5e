"""The published description of a device: attributes and capacities, by the names of the vendor's DRA driver.

Owns the names, those of the API included, so that selectors and classes for the vendor's keep their meaning. An
unknown attribute is left out: a selector for the attribute does not match.
"""

import re
from collections.abc import Iterator, Mapping
from typing import Final

from nodeagent.config.sections.claims import BY_MEMORY
from nodeagent.model.gpu import Gpu, GpuPair, MigDevice
from nodeagent.model.ids import GpuUuid, PciAddress
from nodeagent.model.nvidia import CLAIM_BRANDS
from nodeagent.model.slices import Attribute, Capacity, CapacityPolicy, CounterSet, Version
from nodeagent.model.values import Value
from nodeagent.rules.claims.naming import MigPlace, NamedDevice, list_places, name_gpu

STANDARD: Final = "resource.kubernetes.io"
CORES: Final = 100
MIB: Final = 1 << 20
_TEXT_BYTES: Final = 64
_NUMBERS: Final = re.compile(r"\d+")
_VERSION_PARTS: Final = 3


class DeviceFacts(Value, frozen=True):
    """Published facts about devices from other sources than the GPU itself."""

    driver_version: str = ""
    cuda_version: tuple[int, int] | None = None
    roots: Mapping[PciAddress, str] = {}
    """The root of the PCIe tree above each GPU."""
    groups: Mapping[GpuUuid, str] = {}
    """The group of each GPU that reaches others over NVLink."""


def describe_attributes(device: NamedDevice, facts: DeviceFacts, *, on_demand: bool = False) -> dict[str, Attribute]:
    """The attributes for selectors; a MIG device on demand has the same attributes before and after its creation."""
    gpu = device.gpu
    named: Iterator[tuple[str, Attribute | None]] = iter(
        (
            *_list_kind(device, on_demand=on_demand),
            ("productName", _cut(gpu.name)),
            ("brand", CLAIM_BRANDS.get(gpu.brand, _cut(gpu.brand))),
            ("architecture", _cut(gpu.architecture)),
            ("cudaComputeCapability", _join_version(gpu.compute_capability)),
            ("driverVersion", parse_version(facts.driver_version)),
            ("cudaDriverVersion", _join_version(facts.cuda_version)),
            ("addressingMode", gpu.addressing_mode),
            ("nvlinkClique", _name_clique(gpu)),
            ("nvlinkGroup", facts.groups.get(gpu.uuid)),
            (f"{STANDARD}/pciBusID", gpu.pci.address),
            (f"{STANDARD}/pcieRoot", facts.roots.get(gpu.pci.address)),
            (f"{STANDARD}/numaNode", gpu.numa_node),
        )
    )
    return {name: value for name, value in named if value is not None and value != ""}


def _list_kind(device: NamedDevice, *, on_demand: bool) -> tuple[tuple[str, Attribute | None], ...]:
    if device.is_gpu:
        # The vendor's driver once published the index, and selectors of that time still ask for the index.
        return (("type", "gpu"), ("uuid", device.gpu.uuid), ("index", device.gpu.index))
    uuid = device.mig.uuid if device.mig is not None and not on_demand else None
    return (("type", "mig"), ("parentUUID", device.gpu.uuid), ("profile", _find_profile(device)), ("uuid", uuid))


def _find_profile(device: NamedDevice) -> str:
    if device.place is not None and device.mig is None:
        return device.place.profile.name
    assert device.mig is not None
    return device.mig.profile


def _cut(text: str) -> str:
    """The text, cut to the longest allowed value without half a character."""
    return text.encode()[:_TEXT_BYTES].decode(errors="ignore")


def parse_version(text: str) -> Version | None:
    """Three numbers without leading zeros, comparable as a version; `None` for text without a number."""
    numbers = [str(int(each)) for each in _NUMBERS.findall(text)[:_VERSION_PARTS]]
    return Version(text=".".join((*numbers, "0", "0")[:_VERSION_PARTS])) if numbers else None


def _join_version(numbers: tuple[int, int] | None) -> Version | None:
    return None if numbers is None else Version(text=f"{numbers[0]}.{numbers[1]}.0")


def _name_clique(gpu: Gpu) -> str | None:
    fabric = gpu.fabric
    if fabric is None or not fabric.has_place:
        return None
    return f"{fabric.cluster_uuid.lower()}.{fabric.clique_id}"


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


def group_by_nvlink(pairs: tuple[GpuPair, ...]) -> dict[GpuUuid, str]:
    """A name for each set of GPUs connected by NVLink, directly or by other GPUs; no name for a single GPU."""
    groups: dict[GpuUuid, set[GpuUuid]] = {}
    for pair in pairs:
        if pair.nvlink_count:
            joined = groups.get(pair.left, {pair.left}) | groups.get(pair.right, {pair.right})
            groups |= dict.fromkeys(joined, joined)
    return {uuid: min(members) for uuid, members in groups.items()}


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
