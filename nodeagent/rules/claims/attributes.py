"""The published attributes of a device, by the names of the vendor's DRA driver.

Owns the names, those of the API included, so that selectors and classes for the vendor's keep their meaning. An
unknown attribute is left out: a selector for the attribute does not match.
"""

import re
from collections.abc import Iterator, Mapping
from typing import Final

from msgspec.structs import replace

from nodeagent.model.cordons import render_until
from nodeagent.model.driver import DriverState
from nodeagent.model.gpu import Gpu, GpuPair
from nodeagent.model.ids import GpuUuid, PciAddress
from nodeagent.model.nvidia import CLAIM_BRANDS
from nodeagent.model.proof import GpuProofs, ProofStage
from nodeagent.model.slices import Attribute, Version
from nodeagent.model.values import Value
from nodeagent.rules.claims.naming import NamedDevice

STANDARD: Final = "resource.kubernetes.io"
OWN: Final = "nodeagent.io"
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
    proofs: Mapping[GpuUuid, tuple[ProofStage, float]] = {}
    """The stage of the newest idle-time proof that each GPU passed, and the time."""


def learn_facts(
    before: DeviceFacts,
    driver: DriverState | None,
    pairs: tuple[GpuPair, ...],
    roots: Mapping[PciAddress, str],
    proofs: GpuProofs | None = None,
) -> DeviceFacts:
    """The present facts; a driver that is away for a while is not another driver."""
    if driver is not None and driver.driver_version:
        before = replace(before, driver_version=driver.driver_version, cuda_version=driver.cuda_version)
    passed = {uuid: one.newest_pass for uuid, one in (proofs or GpuProofs()).gpus.items() if one.newest_pass}
    return replace(before, roots=roots, groups=group_by_nvlink(pairs), proofs=passed)


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
            *(_list_proof(facts.proofs.get(gpu.uuid)) if device.is_gpu else ()),
        )
    )
    return {name: value for name, value in named if value is not None and value != ""}


def _list_kind(device: NamedDevice, *, on_demand: bool) -> tuple[tuple[str, Attribute | None], ...]:
    if device.is_gpu:
        # The vendor's driver once published the index, and selectors of that time still ask for the index.
        return (("type", "gpu"), ("uuid", device.gpu.uuid), ("index", device.gpu.index))
    uuid = device.mig.uuid if device.mig is not None and not on_demand else None
    return (("type", "mig"), ("parentUUID", device.gpu.uuid), ("profile", _find_profile(device)), ("uuid", uuid))


def _list_proof(newest: tuple[ProofStage, float] | None) -> tuple[tuple[str, Attribute | None], ...]:
    if newest is None:
        return ()
    level, seconds = newest
    return ((f"{OWN}/proofLevel", level.value), (f"{OWN}/provenAt", render_until(seconds)))


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


def group_by_nvlink(pairs: tuple[GpuPair, ...]) -> dict[GpuUuid, str]:
    """A name for each set of GPUs connected by NVLink, directly or by other GPUs; no name for a single GPU."""
    groups: dict[GpuUuid, set[GpuUuid]] = {}
    for pair in pairs:
        if pair.nvlink_count:
            joined = groups.get(pair.left, {pair.left}) | groups.get(pair.right, {pair.right})
            groups |= dict.fromkeys(joined, joined)
    return {uuid: min(members) for uuid, members in groups.items()}
