"""What must not grow while an agent lives, and whether it did. Pure but for the reading of one process family."""

import json
from collections.abc import Sequence
from statistics import median
from typing import NamedTuple, TypeVar

from tests.bench.around.node import read_memory_kib
from tests.chaos.agent import Agent

T = TypeVar("T")
SLACK = {"rss_mib": 3.0, "own_mib": 3.0, "descriptors": 8, "threads": 5, "tasks": 8}
"""How much more the last quarter may have than the first.

Caches and histories fill. The event loop has a pool of threads that look up names, which grows to its limit and no
further. A connection that is being opened or closed at that moment has descriptors and tasks.
The share of what is mapped by several processes, PSS, is no measure of growth: it grows whenever another process goes
that had the same libraries loaded.
"""
COUNTED = tuple(SLACK)
ATTEMPTS = 50


class Moment(NamedTuple):
    """The agent and its GPU worker at one moment."""

    hours: float
    """Since the agent was started, on its own clock."""
    rss_mib: float
    pss_mib: float
    own_mib: float
    """What no file stands behind: heap, stacks, and data that were written to."""
    descriptors: int
    threads: int
    tasks: int


async def look(agent: Agent, hours: float) -> Moment:
    """The agent now, which must be able to answer."""
    status, body = await agent.get("/api/v1/debug")
    assert status == 200, body
    process = json.loads(body)["process"]
    rss, pss, own = (round(_read_memory_mib(agent, kind), 2) for kind in ("Rss", "Pss", "Anonymous"))
    return Moment(hours, rss, pss, own, process["descriptors"], len(process["threads"]), len(process["tasks"]))


def _read_memory_mib(agent: Agent, kind: str) -> float:
    """Of the agent and its worker; one that is just being replaced counts once the next is there."""
    for _ in range(ATTEMPTS):
        try:
            family = [agent.pid, *agent.list_children()]
            return sum(read_memory_kib(pid, kind) for pid in family) / 1024
        except OSError:
            continue
    raise AssertionError("the worker never lives for long enough to be looked at")


def find_growth(moments: Sequence[Moment]) -> list[str]:
    """What the last quarter has more of than the first, in words; the first look, at a fresh start, counts for none.

    By the middle of each: one look may fall on a worker that is just being replaced, or on a list that is just made.
    """
    grown = []
    for name in COUNTED:
        first, last = map(median, split_quarters([getattr(moment, name) for moment in moments]))
        if last > first + SLACK[name]:
            grown.append(f"{name} grew from {first} to {last}")
    return grown


def split_quarters(values: Sequence[T]) -> tuple[Sequence[T], Sequence[T]]:
    """The first quarter and the last, without the very first value."""
    settled = values[1:]
    part = max(1, len(settled) // 4)
    return settled[:part], settled[-part:]
