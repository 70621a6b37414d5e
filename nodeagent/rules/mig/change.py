"""A change of one GPU as the journal holds it: what it is for, which step was last, and what follows after a kill.

Owns what the steps of a change are called and what stands in them.
Refuses to remember the GPU: what is left to do is read from the hardware, which no journal can know better.
"""

from collections.abc import Sequence
from enum import StrEnum
from typing import Final

import msgspec
from msgspec.structs import replace

from nodeagent.model.journal import Change, Step
from nodeagent.model.mig import GpuPartitions, Write
from nodeagent.model.values import Value
from nodeagent.rules.mig.steps import Goal
from nodeagent.rules.mig.wanted import Wanted

OWNER: Final = "mig"
BEGIN: Final = "begin"
WRITE: Final = "write"
BACK: Final = "back"


class Outcome(StrEnum):
    """How a change ended."""

    DONE = "done"
    UNDONE = "undone"
    HALF = "half"
    """Neither as wished nor as it was: a person must look."""
    REBOOT = "reboot"
    """The mode waits for the node to be booted."""


class Intent(Value, frozen=True):
    """What a change is for."""

    layout: str
    wanted: Wanted
    before: GpuPartitions
    """What the GPU was, without the profiles, which are read anew."""


class Progress(Value, frozen=True):
    """How far a change has come, as far as it is written down."""

    intent: Intent
    is_going_back: bool = False
    reason: str = ""
    """Why it goes back."""
    writes: tuple[Write, ...] = ()
    """Those that were to be made in this direction, before the first of each step; which of them were, the GPU says."""
    has_written: bool = False
    """Whether any call was begun at all, in whichever direction."""

    @property
    def goal(self) -> Goal:
        """Where it goes now."""
        if self.is_going_back:
            return Goal(before=self.intent.before)
        return Goal(wanted=self.intent.wanted)


class ChangeUnreadable(ValueError):
    """A change in the journal that a later version has begun; says which."""


def begin_step(intent: Intent, at_seconds: float) -> Step:
    """The first step: from now on the change is under way."""
    bare = replace(intent, before=replace(intent.before, profiles=()))
    return Step(name=BEGIN, at_seconds=at_seconds, payload=msgspec.json.encode(bare).decode())


def write_step(writes: Sequence[Write], at_seconds: float) -> Step:
    """Calls that change the GPU, before the first of them is made."""
    return Step(name=WRITE, at_seconds=at_seconds, payload=msgspec.json.encode(writes).decode())


def read_writes(step: Step) -> tuple[Write, ...]:
    """The calls of such a step; one that stands alone was written by an agent that wrote down each by itself.

    Raises:
        DecodeError: it is of a later version's making.
    """
    read = msgspec.json.decode(step.payload, type=Write | tuple[Write, ...])
    return (read,) if isinstance(read, Write) else read


def back_step(reason: str, at_seconds: float) -> Step:
    """From now on it goes back to what was before."""
    return Step(name=BACK, at_seconds=at_seconds, payload=reason)


def read_progress(change: Change) -> Progress:
    """How far a change has come.

    Raises:
        ChangeUnreadable: it is not of this version's making.
    """
    try:
        return _read(change.steps)
    except (msgspec.DecodeError, IndexError) as error:
        raise ChangeUnreadable(f"change {change.number} of {change.gpu} cannot be read: {error}") from error


def _read(steps: Sequence[Step]) -> Progress:
    progress = Progress(intent=msgspec.json.decode(steps[0].payload, type=Intent))
    for step in steps[1:]:
        if step.name == BACK:
            progress = replace(progress, is_going_back=True, reason=step.payload, writes=())
        else:
            progress = replace(progress, writes=(*progress.writes, *read_writes(step)), has_written=True)
    return progress
