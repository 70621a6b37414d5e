"""The calls that bring a GPU from its present partitions to the wanted ones, step by step, from any state.

The remaining work follows from the GPU as found, and from nothing done before: after a kill in the middle the agent
reads the GPU and goes on, or goes back.

Owns the order: instances in the way go first, the mode is switched on an empty GPU, new instances are read anew
before anything is built on them.
"""

from collections.abc import Collection, Iterator

from msgspec.structs import replace

from nodeagent.model.mig import GpuInstance, GpuPartitions, Write, WriteKind
from nodeagent.model.values import Value
from nodeagent.rules.mig.partitions import LayoutInfeasible, Target, aim_at, assume_places, is_met, list_targets
from nodeagent.rules.mig.solve import Solution, solve
from nodeagent.rules.mig.wanted import Wanted


class Goal(Value, frozen=True):
    """The wanted state of a GPU: a layout, or exactly the former partitions."""

    wanted: Wanted = Wanted(enabled=False)
    before: GpuPartitions | None = None
    """Outranks `wanted`."""

    @property
    def enabled(self) -> bool:
        """Whether MIG is on then."""
        return self.wanted.enabled if self.before is None else self.before.enabled

    @property
    def pending(self) -> bool:
        """Whether MIG shall be on after the next reset."""
        return self.wanted.enabled if self.before is None else self.before.pending

    def is_reached(self, partitions: GpuPartitions) -> bool:
        """Whether the GPU is so."""
        if self.before is None:
            return is_met(self.wanted, partitions)
        modes = (partitions.enabled, partitions.pending) == (self.before.enabled, self.before.pending)
        return modes and _outline(partitions) == _outline(self.before)

    def targets(self, partitions: GpuPartitions) -> tuple[Target, ...]:
        """The wanted instances, in this GPU's profiles.

        Raises:
            LayoutInfeasible: the GPU does not have the profiles.
        """
        if self.before is None:
            return list_targets(self.wanted, partitions.profiles)
        return aim_at(replace(self.before, profiles=partitions.profiles))


def _outline(partitions: GpuPartitions) -> list[tuple[int, int, list[int]]]:
    """All but the driver's numbers, which are others the next time."""
    return sorted(
        (one.profile_id, -1 if one.start is None else one.start, sorted(compute.slices for compute in one.computes))
        for one in partitions.instances
    )


class RebootNeeded(Exception):
    """The new mode does not count before the node has been booted."""


def plan_writes(
    goal: Goal, partitions: GpuPartitions, *, busy: Collection[int] = (), was_reset: bool = False
) -> tuple[Write, ...]:
    """The calls up to the next moment at which the GPU must be read anew; none when the goal is reached.

    `busy` are the ids of instances in use; `was_reset` tells whether a reset of the mode was tried already.

    Raises:
        LayoutInfeasible: the goal is impossible on this GPU.
        RebootNeeded: a reset did not bring the mode into force.
    """
    if goal.is_reached(partitions):
        return ()
    if goal.enabled is partitions.enabled:
        # Another mode may have been set for the time after the next reset.
        mode = () if partitions.pending is goal.pending else (_switch(on=goal.pending),)
        cut = render_writes(solve(goal.targets(partitions), partitions, busy), partitions) if goal.enabled else ()
        return (*mode, *cut)
    # An impossible layout is refused before the mode is switched for it.
    if goal.enabled and partitions.profiles:
        assumed = assume_places(partitions)
        solve(goal.targets(assumed), assumed)
    cleared = tuple(_clear(partitions)) if partitions.enabled else ()
    if partitions.pending is not goal.enabled:
        return (*cleared, _switch(on=goal.enabled))
    if was_reset:
        raise RebootNeeded
    return (*cleared, Write(kind=WriteKind.RESET))


def _switch(*, on: bool) -> Write:
    return Write(kind=WriteKind.MODE_ON if on else WriteKind.MODE_OFF)


def _clear(partitions: GpuPartitions) -> Iterator[Write]:
    for instance in partitions.instances:
        yield from _destroy(instance, partitions)


def _destroy(instance: GpuInstance, partitions: GpuPartitions) -> Iterator[Write]:
    for compute in instance.computes:
        yield Write(kind=WriteKind.DESTROY_COMPUTE, instance=instance.id, compute=compute.id)
    start = -1 if instance.start is None else instance.start
    yield Write(kind=WriteKind.DESTROY, instance=instance.id, profile=_name(instance, partitions), start=start)


def _name(instance: GpuInstance, partitions: GpuPartitions) -> str:
    names = (one.name for one in partitions.profiles if one.profile_id == instance.profile_id)
    return next(names, f"profile {instance.profile_id}")


def render_writes(solution: Solution, partitions: GpuPartitions) -> Iterator[Write]:
    """The calls of a solution: removals before creations, so that no creation fails for want of room."""
    for instance in solution.destroyed:
        yield from _destroy(instance, partitions)
    for kept in solution.kept:
        for compute in kept.destroyed:
            yield Write(kind=WriteKind.DESTROY_COMPUTE, instance=kept.instance.id, compute=compute.id)
        for slices in kept.created:
            yield Write(kind=WriteKind.CREATE_COMPUTE, instance=kept.instance.id, slices=slices)
    for placed in solution.created:
        profile = placed.target.profile
        yield Write(
            kind=WriteKind.CREATE,
            profile_id=profile.profile_id,
            profile=profile.name,
            start=placed.start,
            size=profile.placement_size,
        )
        for slices in placed.target.computes:
            yield Write(kind=WriteKind.CREATE_COMPUTE, slices=slices)


def check_goal(goal: Goal, partitions: GpuPartitions) -> str:
    """Why the goal is impossible on this GPU; empty where possible, as far as known before MIG is on."""
    try:
        plan_writes(goal, partitions)
    except LayoutInfeasible as refused:
        return str(refused)
    return ""
