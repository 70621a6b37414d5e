"""How devices are offered several times.

Owns the match of configuration entries with devices, the names of the shared resources, and the devices that cannot be
shared by an entry.

The first entry with a match counts, so that models or single GPUs can be shared each in a different way.
"""

from collections.abc import Iterator, Sequence
from typing import TypeAlias

from msgspec.structs import replace

from nodeagent.config.sections.sharing import Mps, SharedResource, SharingSettings, TimeSlicing
from nodeagent.model.ids import ResourceName
from nodeagent.rules.mps.limits import find_most_replicas
from nodeagent.rules.offer.devices import Candidate, Offered, full_name
from nodeagent.rules.selectors import fits_pattern, selects_device

Sharing: TypeAlias = TimeSlicing | Mps


def find_sharing(settings: SharingSettings) -> Sharing | None:
    """The section in force; MPS wins, as in the vendor's device plugin."""
    return settings.mps or settings.timeSlicing


def replicate_devices(
    base: ResourceName, candidates: Sequence[Candidate], sharing: Sharing | None, prefix: str
) -> Iterator[Offered]:
    """Each device of a resource, with the name of the resource after sharing."""
    entries = [entry for entry in sharing.resources if full_name(entry.name, prefix) == base] if sharing else []
    left = [entry.devices if isinstance(entry.devices, int) else len(candidates) for entry in entries]
    for candidate in candidates:
        fitting = (index for index, entry in enumerate(entries) if left[index] and _fits(entry, candidate))
        index = next(fitting, None)
        if index is None:
            yield Offered(device=candidate, base=base, resource=base)
            continue
        left[index] -= 1
        entry = entries[index]
        suffix = ".shared" if sharing is not None and sharing.renameByDefault else ""
        name = full_name(entry.rename, prefix) if entry.rename else ResourceName(base + suffix)
        by_mps = isinstance(sharing, Mps)
        refusal = _refuse_mps(candidate, entry.replicas) if by_mps and not candidate.withheld else ""
        device = replace(candidate, withheld=refusal) if refusal else candidate
        yield Offered(device=device, base=base, resource=name, replicas=entry.replicas, by_mps=by_mps)


def _refuse_mps(candidate: Candidate, replicas: int) -> str:
    """Why a device cannot be shared by MPS; empty where possible."""
    if candidate.mig is not None or candidate.gpu.mig_enabled:
        return "MPS does not share MIG devices here: share them by time slicing, or switch MIG off"
    most = find_most_replicas(candidate.gpu)
    if replicas > most:
        return f"MPS has {most} clients of this GPU at most, and `sharing.mps` asks for {replicas} replicas: lower it"
    return ""


def _fits(entry: SharedResource, candidate: Candidate) -> bool:
    if entry.models and not any(fits_pattern(candidate.gpu.name, pattern) for pattern in entry.models):
        return False
    if isinstance(entry.devices, tuple):
        return any(selects_device(selector, candidate.gpu, candidate.mig) for selector in entry.devices)
    return True
