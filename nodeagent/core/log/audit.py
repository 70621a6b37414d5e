"""Changes outside the process, for the audit log: the only way into the log.

Owns the record of one change, and the registered log; a process has one log or none.
May be called in any thread. The log's callback never blocks and never raises: a failed note undoes no change.
"""

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Final, Literal

from msgspec import Struct

from nodeagent.core.log.lines import describe_error

Kind = Literal["kubernetes", "file", "service", "gpu", "process", "module", "repair", "driver"]
DONE: Final = "done"
CUT_SHORT: Final = "cut short: it may have happened"
DETAIL_MAX: Final = 1000
"""Characters; room for the labels of a node, not for the devices of a slice."""


class Change(Struct, frozen=True):
    """One change, or a failed attempt."""

    at: float
    """Unix time."""
    kind: Kind
    name: str
    """The changed object: a path of the API, a file of the host, a unit, a GPU, a process, kernel modules."""
    action: str
    """The operation, in words."""
    outcome: str = DONE
    detail: str = ""
    missed: int = 0
    """Earlier changes missing from the log because of a slow disk."""


Keep = Callable[[Change], None]


def _keep_nothing(_change: Change) -> None:
    """Commands that only read the node keep no log."""


_keep: Keep = _keep_nothing


@contextmanager
def keeping(keep: Keep) -> Iterator[None]:
    """Call `keep` with every change in the block."""
    global _keep  # noqa: PLW0603  # a process has one audit log, as it has one standard error
    before, _keep = _keep, keep
    try:
        yield
    finally:
        _keep = before


@contextmanager
def noting(kind: Kind, name: str, action: str, detail: str = "") -> Iterator[None]:
    """Note the change made in the block, and the outcome."""
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
