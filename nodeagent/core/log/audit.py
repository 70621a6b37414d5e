"""What this process changed outside itself, told to whoever keeps it: the audit log's only way in.

Owns the record of one change, and the place where it is kept, of which a process has one or none.
May be called in any thread. A keeper never blocks and never raises: a change is not undone because nobody noted it.
"""

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Final, Literal

from msgspec import Struct

from nodeagent.core.log.lines import describe_error

Kind = Literal["kubernetes", "file", "service", "gpu", "process"]
DONE: Final = "done"
CUT_SHORT: Final = "cut short: it may have happened"
DETAIL_MAX: Final = 1000
"""Characters: the labels of a node fit, the devices of a slice do not."""


class Change(Struct, frozen=True):
    """One change, or an attempt at one that failed."""

    at: float
    """Unix time."""
    kind: Kind
    name: str
    """What was changed: a path of the API, a file of the host, a unit, a GPU, a process."""
    action: str
    """The operation, in words."""
    outcome: str = DONE
    detail: str = ""
    missed: int = 0
    """Changes before this one that are not in the log, because the disk was too slow for them."""


Keep = Callable[[Change], None]


def _keep_nothing(_change: Change) -> None:
    """Commands that look at the node keep no log."""


_keep: Keep = _keep_nothing


@contextmanager
def keeping(keep: Keep) -> Iterator[None]:
    """Have `keep` told of every change in this block."""
    global _keep  # noqa: PLW0603  # a process has one audit log, as it has one standard error
    before, _keep = _keep, keep
    try:
        yield
    finally:
        _keep = before


@contextmanager
def noting(kind: Kind, name: str, action: str, detail: str = "") -> Iterator[None]:
    """Note the change that this block makes, and how it ended."""
    outcome = CUT_SHORT
    try:
        yield
        outcome = DONE
    except Exception as error:
        outcome = describe_error(error)
        raise
    finally:
        short = detail if len(detail) <= DETAIL_MAX else f"{detail[: DETAIL_MAX - 1]}…"
        _keep(Change(time.time(), kind, name, action, outcome, short))
