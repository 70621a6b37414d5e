"""Where each wanted GPU instance goes: all of them fit, and as much as possible stays as it is.

Owns the search over the places reported by the driver for this GPU, and the explanation of a misfit.
Refuses to try foreseeable failures on the hardware: an impossible layout changes nothing.
"""

from collections import Counter
from collections.abc import Collection, Iterable, Sequence
from typing import Final

from nodeagent.model.gpu import MigProfile
from nodeagent.model.mig import ComputeInstance, GpuInstance, GpuPartitions
from nodeagent.model.values import Value
from nodeagent.rules.mig.partitions import LayoutInfeasible, Target, count_slices

_BUSY_WORTH: Final = 1000
"""The worth of leaving a used instance alone, in calls for others."""


class Placed(Value, frozen=True):
    """A GPU instance to be made."""

    target: Target
    start: int


class Kept(Value, frozen=True):
    """A GPU instance to stay, and the changes within it."""

    instance: GpuInstance
    destroyed: tuple[ComputeInstance, ...] = ()
    created: tuple[int, ...] = ()
    """Slices of each compute instance to be made."""


class Solution(Value, frozen=True):
    """The way of a GPU from present to wanted partitions, with as few writing calls as possible."""

    kept: tuple[Kept, ...] = ()
    destroyed: tuple[GpuInstance, ...] = ()
    created: tuple[Placed, ...] = ()
    """The widest first: a driver that knows no places then puts them where all fit."""

    @property
    def writes(self) -> int:
        """The number of writing calls."""
        within = sum(len(one.destroyed) + len(one.created) for one in self.kept)
        gone = sum(1 + len(one.computes) for one in self.destroyed)
        return within + gone + sum(1 + len(one.target.computes) for one in self.created)


def solve(targets: Sequence[Target], partitions: GpuPartitions, busy: Collection[int] = ()) -> Solution:
    """The cheapest solution; `busy` are the ids of instances in use, which stay if any solution lets them.

    Raises:
        LayoutInfeasible: there is no solution; the message names the misfit, and a fitting profile.
    """
    search = _Search(targets, partitions, busy)
    found = search.run()
    if found is None:
        raise LayoutInfeasible(_explain(targets, partitions.profiles))
    return _render(found, partitions)


class _Search:
    """Search over the places of one target after the other, with the best arrangement so far."""

    def __init__(self, targets: Sequence[Target], partitions: GpuPartitions, busy: Collection[int]) -> None:
        self._targets = targets
        self._has_room = _has_room(targets, partitions.profiles)
        self._there = {(one.profile_id, one.start): one for one in partitions.instances}
        self._busy = frozenset(busy)
        self._best: tuple[int, tuple[int, ...]] | None = None
        self._most = [0] * (len(targets) + 1)
        for place in reversed(range(len(targets))):
            values = [self._value(targets[place], start) for start in _list_starts(targets[place])]
            self._most[place] = self._most[place + 1] + max(values, default=0)

    def run(self) -> tuple[tuple[Target, int], ...] | None:
        if self._has_room:
            self._try(0, 0, 0, ())
        return None if self._best is None else tuple(zip(self._targets, self._best[1], strict=True))

    def _try(self, place: int, taken: int, worth: int, starts: tuple[int, ...]) -> None:
        if place == len(self._targets):
            self._best = (worth, starts)
            return
        target = self._targets[place]
        # The order of equal targets means nothing: only one order is tried.
        after = starts[-1] if place and target == self._targets[place - 1] else -1
        for start in _list_starts(target):
            slots = _mask(start, target.profile.placement_size)
            if start <= after or slots & taken:
                continue
            now = worth + self._value(target, start)
            if self._best is None or now + self._most[place + 1] > self._best[0]:
                self._try(place + 1, taken | slots, now, (*starts, start))

    def _value(self, target: Target, start: int) -> int:
        """The calls saved by an instance already at this place."""
        instance = self._there.get((target.profile.profile_id, start))
        if instance is None:
            return 0
        kept = _keep(instance, target)
        within = len(kept.destroyed) + len(kept.created)
        saved = 2 + len(instance.computes) + len(target.computes) - within
        return saved + (_BUSY_WORTH if instance.id in self._busy and not kept.destroyed else 0)


def _list_starts(target: Target) -> tuple[int, ...]:
    return target.profile.placements if target.start is None else (target.start,)


def _mask(start: int, size: int) -> int:
    return ((1 << size) - 1) << start


def _has_room(targets: Iterable[Target], profiles: Iterable[MigProfile]) -> bool:
    wanted = tuple(targets)
    slices = sum(one.profile.slice_count for one in wanted)
    counts = Counter(one.profile.profile_id for one in wanted)
    return slices <= count_slices(profiles) and all(
        counts[one.profile.profile_id] <= one.profile.instances_max for one in wanted
    )


def _keep(instance: GpuInstance, target: Target) -> Kept:
    """The changes within a remaining instance: as few as possible, with room for the new compute instances."""
    missing = Counter(target.computes)
    surplus: list[ComputeInstance] = []
    for compute in instance.computes:
        if missing[compute.slices]:
            missing[compute.slices] -= 1
        else:
            surplus.append(compute)
    created = tuple(sorted(missing.elements(), reverse=True))
    if created and created[0] > 1:
        # The places of the other compute instances are unknown: they could be in the way of any wider than a slice.
        return Kept(instance=instance, destroyed=instance.computes, created=target.computes)
    return Kept(instance=instance, destroyed=tuple(surplus), created=created)


def _render(found: Iterable[tuple[Target, int]], partitions: GpuPartitions) -> Solution:
    there = {(one.profile_id, one.start): one for one in partitions.instances}
    kept: list[Kept] = []
    created: list[Placed] = []
    for target, start in found:
        instance = there.pop((target.profile.profile_id, start), None)
        if instance is None:
            created.append(Placed(target=target, start=start))
        else:
            kept.append(_keep(instance, target))
    stays = {one.instance.id for one in kept}
    destroyed = tuple(one for one in partitions.instances if one.id not in stays)
    return Solution(kept=tuple(kept), destroyed=destroyed, created=tuple(created))


def _explain(targets: Sequence[Target], profiles: Sequence[MigProfile]) -> str:
    """The first target without room beside those before it, and the profiles with room in its place."""
    empty = GpuPartitions(enabled=True, pending=True, profiles=tuple(profiles))
    fits = next(count for count in range(len(targets)) if _Search(targets[: count + 1], empty, ()).run() is None)
    guilty, beside = targets[fits].profile, targets[:fits]
    most = guilty.instances_max
    if sum(one.profile.profile_id == guilty.profile_id for one in beside) >= most:
        return f"{guilty.name} does not fit {most + 1} times: at most {most} of it can be on one GPU"
    others = [one.name for one in profiles if _fits_beside(one, beside, empty)]
    room = f"there is room for {_join(others)}" if others else "nothing more fits"
    return f"{guilty.name} does not fit beside {_describe(beside) or 'nothing else'}: {room}"


def _fits_beside(profile: MigProfile, targets: Sequence[Target], empty: GpuPartitions) -> bool:
    one = Target(profile=profile, computes=(profile.slice_count,))
    return _Search((*targets, one), empty, ()).run() is not None


def _describe(targets: Iterable[Target]) -> str:
    counts = Counter(one.profile.name for one in targets)
    return " + ".join(f"{count} x {name}" for name, count in counts.items())


def _join(names: Sequence[str]) -> str:
    return names[0] if len(names) == 1 else f"{', '.join(names[:-1])} or {names[-1]}"
