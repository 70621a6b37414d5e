"""A change of one GPU as the journal holds it: purpose, last step, and the way on after a kill.

Owns the names and payloads of the steps of a change.
Refuses to remember the GPU: the remaining work is read from the hardware, the better source.
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
    """Neither the wanted layout nor the former one: a person must look."""
    REBOOT = "reboot"
    """The mode waits for the node to be booted."""


class Intent(Value, frozen=True):
    """The purpose of a change."""

    layout: str
    wanted: Wanted
    before: GpuPartitions
    """The partitions before the change, without the profiles, which are read anew."""


class Progress(Value, frozen=True):
    """The progress of a change, as far as the journal tells."""

    intent: Intent
    is_going_back: bool = False
    reason: str = ""
    """Why the change goes back."""
    writes: tuple[Write, ...] = ()
    """The calls planned in this direction, journalled before the first of each step; the GPU tells which were made."""
    has_written: bool = False
    """Whether any call was begun at all, in whichever direction."""

    @property
    def goal(self) -> Goal:
        """The goal in the present direction."""
        if self.is_going_back:
            return Goal(before=self.intent.before)
        return Goal(wanted=self.intent.wanted)


class ChangeUnreadable(ValueError):
    """A change in the journal begun by a later version; the message names the change."""


def begin_step(intent: Intent, at_seconds: float) -> Step:
    """The first step: from now on the change is under way."""
    bare = replace(intent, before=replace(intent.before, profiles=()))
    return Step(name=BEGIN, at_seconds=at_seconds, payload=msgspec.json.encode(bare).decode())


def write_step(writes: Sequence[Write], at_seconds: float) -> Step:
    """Calls to change the GPU, before the first of them is made."""
    return Step(name=WRITE, at_seconds=at_seconds, payload=msgspec.json.encode(writes).decode())


def read_writes(step: Step) -> tuple[Write, ...]:
    """The calls of a `WRITE` step; agents of former versions wrote each call as a step of its own.

    Raises:
        DecodeError: a later version has written the step.
    """
    read = msgspec.json.decode(step.payload, type=Write | tuple[Write, ...])
    return (read,) if isinstance(read, Write) else read


def back_step(reason: str, at_seconds: float) -> Step:
    """From now on the change goes back to the former partitions."""
    return Step(name=BACK, at_seconds=at_seconds, payload=reason)


def read_progress(change: Change) -> Progress:
    """The progress of a change.

    Raises:
        ChangeUnreadable: another version has written the change.
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
