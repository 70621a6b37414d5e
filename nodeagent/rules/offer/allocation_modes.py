"""The allocation mode of each GPU (`door` for users), and the time of the mode's coming into force.

Owns the rules of the configuration, a person's overrides, and the change from one mode to another.

Refuses to guess: a selector without a match selects nothing and is reported, and of two contradictory rules for a
GPU the first counts and both are named.
A GPU's mode follows from the holders and nothing else, so that a change goes on after a restart as if there had
been none.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import combinations
from typing import Final, NamedTuple, assert_never

from nodeagent.config.schema import Settings
from nodeagent.config.sections.allocation_modes import ALL, AllocationModeRule, ModeChange
from nodeagent.model.allocation import Allocation
from nodeagent.model.claims import ReadyClaims
from nodeagent.model.gpu import Gpu, MissingGpu
from nodeagent.model.ids import GpuUuid, PciAddress, parse_pci_address
from nodeagent.model.journal import FractionTable
from nodeagent.model.offering import AllocationMode, GpuAllocationMode, ModeHolder
from nodeagent.model.values import Value
from nodeagent.rules.ids import find_uuid
from nodeagent.rules.selectors import fits_pattern, select_gpus, selects_gpu

_UNNAMED, _BY_ALL, _BY_MODEL, _BY_ITSELF = range(4)
"""How closely a rule names a GPU."""

_BY_DEFAULT: Final = "the default"
_LEFT_ALONE: Final = "left alone by gpus.include, gpus.exclude or as a mere display adapter"
_CUT: Final = "MIG is on, and fractions are of whole GPUs: switch it off, or choose another door"


class WantedMode(Value, frozen=True):
    """The wanted allocation mode of a GPU, and the reason."""

    gpu: GpuUuid
    index: int
    address: PciAddress
    door: AllocationMode
    reason: str


class ModePlan(Value, frozen=True):
    """The wanted mode of each GPU, and the faults of the rules."""

    requests: tuple[WantedMode, ...] = ()
    """In index order."""
    conflicts: tuple[str, ...] = ()
    """Contradictory rules for the same GPUs, a sentence for each pair."""
    unmatched: tuple[str, ...] = ()
    """Selectors and overrides that mean no GPU of this node, a sentence each."""
    undecided: tuple[str, ...] = ()
    """Selectors and overrides that may mean a GPU without an answer: unknown until it answers."""


def plan_allocation_modes(
    gpus: Iterable[Gpu],
    settings: Settings,
    overrides: Mapping[GpuUuid, AllocationMode],
    missing: Sequence[MissingGpu] = (),
) -> ModePlan:
    """The wanted mode of each GPU; a person's override counts more than any rule.

    Of the `missing` GPUs nothing but the address is known, if that.
    """
    ordered = sorted(gpus, key=lambda gpu: (gpu.index, gpu.uuid))
    rules = settings.doors.rules
    ours = {gpu.uuid for gpu in select_gpus(ordered, settings.gpus.include, settings.gpus.exclude)}
    unmatched = tuple(_list_unmatched(ordered, rules, overrides))
    return ModePlan(
        requests=tuple(_find_wanted(gpu, rules, overrides.get(gpu.uuid), ours=gpu.uuid in ours) for gpu in ordered),
        conflicts=tuple(_list_conflicts(ordered, rules)),
        unmatched=tuple(one.problem for one in unmatched if not one.may_mean(missing)),
        undecided=tuple(one.name for one in unmatched if one.may_mean(missing)),
    )


def _find_wanted(
    gpu: Gpu, rules: Sequence[AllocationModeRule], override: AllocationMode | None, *, ours: bool
) -> WantedMode:
    mode, reason = _choose(gpu, rules, override)
    if not ours:
        mode, reason = AllocationMode.NONE, _LEFT_ALONE
    elif gpu.mig_enabled and not _takes_mig(mode):
        mode, reason = AllocationMode.NONE, f"{reason}: {_CUT}"
    return WantedMode(gpu=gpu.uuid, index=gpu.index, address=gpu.pci.address, door=mode, reason=reason)


def _takes_mig(door: AllocationMode) -> bool:
    """Whether a GPU with MIG on can be given out in the allocation mode."""
    match door:
        case AllocationMode.FRACTIONS:
            return False
        case AllocationMode.WHOLE | AllocationMode.CLAIMS | AllocationMode.NONE:
            return True
    assert_never(door)


def gives_out(door: AllocationMode) -> bool:
    """Whether new pods may get a GPU of the allocation mode at all."""
    match door:
        case AllocationMode.WHOLE | AllocationMode.FRACTIONS | AllocationMode.CLAIMS:
            return True
        case AllocationMode.NONE:
            return False
    assert_never(door)


def _choose(
    gpu: Gpu, rules: Sequence[AllocationModeRule], override: AllocationMode | None
) -> tuple[AllocationMode, str]:
    if override is not None:
        return override, "set by a person"
    for place, rule in enumerate(rules):
        if _closeness(rule, gpu) is not _UNNAMED:
            return AllocationMode(rule.door), _name(place)
    return AllocationMode.WHOLE, _BY_DEFAULT


def _name(place: int) -> str:
    return f"doors.rules[{place}]"


def _closeness(rule: AllocationModeRule, gpu: Gpu) -> int:
    """How closely a rule names a GPU, by the closest of the selectors."""
    return max(_judge(selector, gpu) for selector in rule.gpus)


def _judge(selector: str, gpu: Gpu) -> int:
    if selector == ALL:
        return _BY_ALL
    if not selects_gpu(selector, gpu):
        return _UNNAMED
    return _BY_MODEL if fits_pattern(gpu.name, selector) else _BY_ITSELF


def _list_conflicts(gpus: Sequence[Gpu], rules: Sequence[AllocationModeRule]) -> Iterator[str]:
    """Rules with different modes of which the later names a GPU as closely as the earlier, or more so.

    An exception before the general rule is how such lists are meant, and no conflict.
    """
    for (place, rule), (later_place, later) in combinations(enumerate(rules), 2):
        if rule.door == later.door:
            continue
        both = [gpu for gpu in gpus if _UNNAMED < _closeness(rule, gpu) <= _closeness(later, gpu)]
        if both:
            named = f"GPU {', '.join(str(gpu.index) for gpu in both)}"
            yield (
                f"{_name(place)} ({rule.door}) and {_name(later_place)} ({later.door}) both name {named}:"
                " the first counts; let one of them go, or put the exception first"
            )


class _Unmatched(NamedTuple):
    """A selector, or a GPU with a person's override, without a match among the known GPUs."""

    name: str
    selector: str
    problem: str
    """The fault of a selector without a meaning."""

    def may_mean(self, missing: Sequence[MissingGpu]) -> bool:
        """Whether the selector may mean a GPU that does not answer; only the address of such a GPU is known."""
        try:
            address = parse_pci_address(self.selector)
        except ValueError:
            return bool(missing)
        return any(one.address in ("", address) for one in missing)


def _list_unmatched(
    gpus: Sequence[Gpu], rules: Sequence[AllocationModeRule], overrides: Mapping[GpuUuid, AllocationMode]
) -> Iterator[_Unmatched]:
    for place, rule in enumerate(rules):
        for selector in rule.gpus:
            if selector != ALL and not any(selects_gpu(selector, gpu) for gpu in gpus):
                name = f"{_name(place)}: {selector!r}"
                yield _Unmatched(name, selector, f"{name} means no GPU of this node; mend it or take it out")
    known = {gpu.uuid for gpu in gpus}
    for uuid, mode in sorted(overrides.items()):
        if uuid not in known:
            problem = f"door {mode} was set for {uuid}, which this node does not have"
            yield _Unmatched(f"the door {mode} set for {uuid}", uuid, problem)


def list_holders(gpu: Gpu, allocations: Iterable[Allocation], door: AllocationMode) -> tuple[ModeHolder, ...]:
    """The allocations of the GPU, of its MIG devices or of replicas of either, as holders by the given mode."""
    names = set(gpu.device_uuids)
    return tuple(
        ModeHolder(door=door, name=f"allocation {each.number}", pod=each.pod, container=each.container)
        for each in allocations
        if any(find_uuid(device) in names for device in each.devices)
    )


def list_fraction_holders(gpu: GpuUuid, parts: FractionTable) -> tuple[ModeHolder, ...]:
    """The containers with a fraction of the GPU."""
    return tuple(
        ModeHolder(door=AllocationMode.FRACTIONS, name=f"binding {each.number}", pod=each.pod, container=each.container)
        for each in parts.by_gpu.get(gpu, ())
    )


def list_claim_holders(gpu: GpuUuid, ready: ReadyClaims) -> tuple[ModeHolder, ...]:
    """The pods with the GPU, or a part of it, by claims; a claim without pods stands for itself."""
    claims = {claim.uid: claim for claim, _ in ready.by_gpu.get(gpu, ())}
    return tuple(
        ModeHolder(door=AllocationMode.CLAIMS, name=f"claim {claim.describe()}", pod=pod)
        for claim in claims.values()
        for pod in claim.pods or (None,)
    )


def decide_allocation_mode(request: WantedMode, holders: Sequence[ModeHolder], change: ModeChange) -> GpuAllocationMode:
    """The mode of a GPU from now on: the present holders' mode, without holders the wanted mode.

    `change` tells whether new pods may come in by the old mode while the change waits.
    """
    inside = {holder.door for holder in holders}
    mode = request.door if not inside or request.door in inside else min(inside, key=list(AllocationMode).index)
    # A holder by another mode than the rest was found late: two kinds of accounting for one GPU add up to nothing.
    strangers = tuple(holder for holder in holders if holder.door is not mode)
    draining = mode is not request.door and change == "drain"
    return GpuAllocationMode(
        gpu=request.gpu,
        index=request.index,
        address=request.address,
        door=mode,
        wanted=request.door,
        reason=request.reason,
        is_open=gives_out(mode) and not (strangers or draining),
        waits_for=strangers if mode is request.door else tuple(holders),
    )
