"""What must not grow while an agent lives, and whether it did. Pure but for the reading of one process family."""

import json
from collections.abc import Sequence
from typing import NamedTuple

from tests.bench.node import read_memory_kib
from tests.chaos.agent import Agent

SLACK = {"rss_mib": 4.0, "pss_mib": 4.0, "descriptors": 3, "threads": 2, "tasks": 4}
"""How much more the last quarter may have than the first: caches that fill, a scrape that is under way."""
COUNTED = tuple(SLACK)


class Moment(NamedTuple):
    """The agent and its GPU worker at one moment."""

    hours: float
    """Since the agent was started, on its own clock."""
    rss_mib: float
    pss_mib: float
    descriptors: int
    threads: int
    tasks: int


async def look(agent: Agent, hours: float) -> Moment:
    """The agent now, which must be able to answer."""
    status, body = await agent.get("/api/v1/debug")
    assert status == 200, body
    process = json.loads(body)["process"]
    family = [agent.pid, *agent.list_children()]
    rss, pss = (sum(read_memory_kib(pid, kind) for pid in family) / 1024 for kind in ("Rss", "Pss"))
    return Moment(
        hours, round(rss, 2), round(pss, 2), process["descriptors"], len(process["threads"]), len(process["tasks"])
    )


def find_growth(moments: Sequence[Moment]) -> list[str]:
    """What the last quarter has more of than the first, in words; the first look, at a fresh start, counts for none."""
    settled = moments[1:]
    part = max(1, len(settled) // 4)
    grown = []
    for name in COUNTED:
        first = max(getattr(moment, name) for moment in settled[:part])
        last = max(getattr(moment, name) for moment in settled[-part:])
        if last > first + SLACK[name]:
            grown.append(f"{name} grew from {first} to {last}")
    return grown
