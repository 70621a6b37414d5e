"""A keeper of allocations on a disk that fills up and goes read-only, for real; ends with 0 when all held.

    unshare --map-root-user --mount python -m tests.faults.journal.small_disk DIRECTORY

Needs a mount namespace of its own, in which it mounts a small file system at the directory.
"""

import logging
import subprocess
import sys
from pathlib import Path

import anyio
import pytest
import structlog

from nodeagent.components.allocations.component import Allocations
from nodeagent.components.allocations.journal_task import Journal
from nodeagent.config.live import LiveSettings
from nodeagent.config.schema import Settings
from nodeagent.core.channels.bus import Bus
from nodeagent.core.clock import SystemClock
from nodeagent.core.conditions import Conditions
from nodeagent.edge.host.files.journal_disk import JournalDisk
from nodeagent.model.conditions import CATALOGUE
from nodeagent.model.errors import JournalUnavailable
from tests.fakes.journal_store import FakeKubelet
from tests.faults.journal.scenario import NODE, find_faults
from tests.support.allocations import GPU, device_ids

HEALED_SECONDS = 5.0


def mount(*options: str) -> None:
    subprocess.run(["mount", *options], check=True)


class Disk:
    """The small file system, and what can happen to it."""

    def __init__(self, directory: Path) -> None:
        self.directory, self._filler = directory, directory / "filler"
        mount("-t", "tmpfs", "-o", "size=64k", "tmpfs", str(directory))

    def fill(self) -> None:
        with self._filler.open("wb", buffering=0) as file:
            try:
                while True:
                    file.write(b"x" * 512)
            except OSError:
                return

    def empty(self) -> None:
        self._filler.unlink()

    def make_read_only(self) -> None:
        mount("-o", "remount,ro", str(self.directory))

    def make_writable(self) -> None:
        mount("-o", "remount,rw", str(self.directory))


async def check(directory: Path) -> None:
    bus, clock, kubelet, live = Bus(SystemClock()), SystemClock(), FakeKubelet(), LiveSettings(Settings())
    conditions = Conditions(bus, clock, CATALOGUE)
    disk = Disk(directory)
    journal = Journal(
        bus, conditions, clock, live, kubelet,  # type: ignore[arg-type]  # as far as it is used
        open_store=lambda: JournalDisk(directory), read_node=lambda: NODE,
    )  # fmt: skip
    keeper = Allocations(bus, conditions, clock, live, journal)

    def is_unavailable() -> bool:
        return any(condition.code == "journal-unavailable" for condition in conditions.all_set())

    async def record_often(device: str) -> None:
        """One record may still fit into the last block, many do not."""
        for _ in range(64):
            await journal.record(GPU, device_ids(device))

    async def refuse(device: str, words: str) -> None:
        with pytest.raises(JournalUnavailable, match=words):
            await record_often(device)
        assert is_unavailable()

    async def heal() -> None:
        deadline = anyio.current_time() + HEALED_SECONDS
        while is_unavailable():
            assert anyio.current_time() < deadline, "it did not heal"
            await anyio.sleep(0.05)

    async with anyio.create_task_group() as tasks:
        await tasks.start(lambda task_status: keeper.run(task_status=task_status))
        await journal.record(GPU, device_ids("a"))
        disk.fill()
        await refuse("b", "no space left on device")
        disk.empty()
        await heal()
        await journal.record(GPU, device_ids("c"))
        await journal.record(GPU, device_ids("d"))
        # the keeper holds the journal open for writing, which forbids a change to read-only until it has let go
        disk.fill()
        await refuse("e", "no space left on device")
        tasks.cancel_scope.cancel()
    disk.empty()
    disk.make_read_only()
    keeper = Allocations(bus, conditions, clock, live, journal)
    async with anyio.create_task_group() as tasks:
        await tasks.start(lambda task_status: keeper.run(task_status=task_status))
        await refuse("f", "read-only file system")
        disk.make_writable()
        await heal()
        await journal.record(GPU, device_ids("g"))
        tasks.cancel_scope.cancel()
    faults = find_faults(directory, "GPU-a GPU-c GPU-d GPU-g")
    assert not faults, faults


if __name__ == "__main__":
    structlog.configure(wrapper_class=structlog.make_filtering_bound_logger(logging.CRITICAL))
    anyio.run(check, Path(sys.argv[1]))
