"""How devices are offered several times.

Owns which entry of the configuration shares which device, and what the result is called.
The first entry that fits a device counts, so that models or single GPUs can be shared each in their own way.
"""

from collections.abc import Iterator, Sequence

from nodeagent.config.sections.sharing import SharedResource, TimeSlicing
from nodeagent.model.ids import ResourceName
from nodeagent.rules.offer.devices import Candidate, Offered
from nodeagent.rules.offer.naming import full_name
from nodeagent.rules.selectors import fits_pattern, selects_device


def share_devices(
    base: ResourceName, candidates: Sequence[Candidate], sharing: TimeSlicing | None, prefix: str
) -> Iterator[Offered]:
    """Each device of a resource, with the name of the resource that it or its shares end up in."""
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
        yield Offered(device=candidate, base=base, resource=name, replicas=entry.replicas)


def _fits(entry: SharedResource, candidate: Candidate) -> bool:
    if entry.models and not any(fits_pattern(candidate.gpu.name, pattern) for pattern in entry.models):
        return False
    if isinstance(entry.devices, tuple):
        return any(selects_device(selector, candidate.gpu, candidate.mig) for selector in entry.devices)
    return True
