"""The files that containers write: looked at now and then, cut, and said by conditions that name whose they are."""

from collections.abc import AsyncIterator, MutableMapping
from contextlib import asynccontextmanager
from typing import Any

import anyio
import pytest

from nodeagent.components.usage.files_task import POLL_INTERVAL_SECONDS, UsageFiles
from nodeagent.core.channels.bus import Bus
from nodeagent.core.conditions import Conditions
from nodeagent.model.claims import ReadyClaims
from nodeagent.model.conditions import CATALOGUE
from nodeagent.model.fractions import UsageCheck
from nodeagent.model.journal import PreparedClaim
from tests.component.fractions.harness import FakeFolders
from tests.support.virtual_time import FakeClock
from tests.unit.components.usage.builders import bind, tabulate

pytestmark = pytest.mark.virtual_time


class World:
    """The component, the folders of both who give parts, and what it says."""

    def __init__(self) -> None:
        clock = FakeClock()
        self.bus = Bus(clock)
        self.conditions = Conditions(self.bus, clock, CATALOGUE)
        self.parts, self.shares = FakeFolders(), FakeFolders()

    def details(self, code: str) -> dict[str, str]:
        return {each.key: each.detail for each in self.conditions.all_set() if each.code == code}


@asynccontextmanager
async def open_world() -> AsyncIterator[World]:
    world = World()
    component = UsageFiles(world.bus, world.conditions, [world.parts, world.shares])
    async with anyio.create_task_group() as tasks:
        await tasks.start(lambda *, task_status: component.run(task_status=task_status))
        yield world
        tasks.cancel_scope.cancel()


async def test_a_container_that_fills_its_file_is_named() -> None:
    """By its pod and container, or by its claim; by the folder where nobody knows whose it is."""
    async with open_world() as world:
        await anyio.sleep(POLL_INTERVAL_SECONDS)
        assert world.details("part-usage-grown") == {}
        one = bind(1, "a")
        world.bus.publish_state(tabulate(one), source="allocations")
        claim = PreparedClaim(uid="c-1", namespace="team", name="gpu", devices=(), since_seconds=0)
        world.bus.publish_state(ReadyClaims(claims={"c-1": claim}), source="allocations")
        name = one.cdi_name.rpartition("=")[2] or "b1"
        world.parts.check = UsageCheck(grown={name: 3 << 30})
        world.shares.check = UsageCheck(grown={"c-1": 1 << 20, "c-2": 1 << 20})
        await anyio.sleep(POLL_INTERVAL_SECONDS)
        said = world.details("part-usage-grown")
        assert said[name] == f"{one.pod.describe()} (main): its file had grown to 3 GiB and was cut"
        assert said["c-1"] == "claim team/gpu: its file had grown to 1 MiB and was cut"
        assert said["c-2"].startswith("c-2: ")
        world.parts.check = world.shares.check = UsageCheck()
        await anyio.sleep(POLL_INTERVAL_SECONDS)
        assert world.details("part-usage-grown") == {}


async def test_files_on_the_disk_are_said_while_there_are_any() -> None:
    """How many, of parts and of claims."""
    async with open_world() as world:
        world.parts.check = UsageCheck(unbounded=("a", "b"))
        world.shares.check = UsageCheck(unbounded=("c",))
        await anyio.sleep(POLL_INTERVAL_SECONDS)
        assert world.details("part-usage-unbounded") == {"": "those of 3 containers or claims lie on the disk"}
        world.parts.check = world.shares.check = UsageCheck()
        await anyio.sleep(POLL_INTERVAL_SECONDS)
        assert world.details("part-usage-unbounded") == {}


async def test_folders_that_cannot_be_looked_at_keep_no_others_from_it(
    log_lines: list[MutableMapping[str, Any]],
) -> None:
    """The reason is logged once."""
    async with open_world() as world:
        world.parts.broken = "the disk hangs"
        world.shares.check = UsageCheck(grown={"c": 1 << 20})
        await anyio.sleep(3 * POLL_INTERVAL_SECONDS)
        assert set(world.details("part-usage-grown")) == {"c"}
        assert [line["reason"] for line in log_lines if line["event"] == "usage_files_not_bounded"] == [
            "the disk hangs"
        ]
