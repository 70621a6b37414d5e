"""The layouts that every GPU node has by name, made from its GPUs' profiles: no file is needed for them.

`all-disabled`, `all-enabled`, `all-balanced`, and `all-<profile>` for each profile that fills a GPU instance.
Owns those names. Refuses tables of products: a profile has the driver's name.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Final

from nodeagent.model.gpu import Gpu, MigProfile
from nodeagent.rules.mig.layouts import DeviceFilter, Layout, LayoutRule
from nodeagent.rules.mig.profiles import Profile, ProfileUnreadable, parse_profile, plain_profile

DISABLED: Final = "all-disabled"
ENABLED: Final = "all-enabled"
BALANCED: Final = "all-balanced"
_BALANCE: Final = {7: {1: 2, 2: 1, 3: 1}, 4: {1: 2, 2: 1}}
"""By the GPU's slices: the number of instances of each size in slices."""


def name_layouts(gpus: Sequence[Gpu]) -> Mapping[str, Layout]:
    """The layouts by name, with filters only on a node with several models."""
    kinds = _list_kinds(gpus)
    named: dict[str, Layout] = {DISABLED: (LayoutRule(enabled=False),), ENABLED: (LayoutRule(enabled=True),)}
    is_mixed = len({gpu.pci.device_id for gpu in gpus}) > 1
    parts: dict[str, list[LayoutRule]] = {}
    for device_id, profiles in kinds:
        filters = (DeviceFilter(device_id=device_id),) if is_mixed else ()
        for name, counts in _list_layouts(profiles):
            parts.setdefault(name, []).append(LayoutRule(enabled=True, filters=filters, profiles=counts))
    return named | {name: tuple(found) for name, found in parts.items()}


def _list_kinds(gpus: Iterable[Gpu]) -> list[tuple[int, tuple[MigProfile, ...]]]:
    """Each MIG-capable model once, with its profiles."""
    kinds: dict[int, tuple[MigProfile, ...]] = {}
    for gpu in gpus:
        if gpu.mig is not None and gpu.mig.profiles:
            kinds.setdefault(gpu.pci.device_id, gpu.mig.profiles)
    return list(kinds.items())


def _list_layouts(profiles: Sequence[MigProfile]) -> Iterator[tuple[str, Mapping[str, int]]]:
    known = [(profile, one) for one in profiles if (profile := _parse(one.name)) is not None]
    for profile, one in known:
        yield f"all-{plain_profile(profile.name)}", {profile.name: one.instances_max}
    balanced = _balance(known)
    if balanced:
        yield BALANCED, balanced


def _parse(name: str) -> Profile | None:
    try:
        return parse_profile(name)
    except ProfileUnreadable:
        return None


def _balance(known: Sequence[tuple[Profile, MigProfile]]) -> Mapping[str, int]:
    """Some instances of each size: of profiles with equal slices, the plain profile with the most instances."""
    shares = _BALANCE.get(max((one.slice_count for _, one in known), default=0), {})
    balanced: dict[str, int] = {}
    for slices, count in shares.items():
        alike = [
            (one.instances_max, profile.name)
            for profile, one in known
            if one.slice_count == slices and not profile.more and not profile.less
        ]
        if not alike:
            return {}
        balanced[max(alike)[1]] = count
    return balanced
