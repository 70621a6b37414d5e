"""One life of an agent's journal, with every step that touches the disk counted, so that it can fail or die at each.

A life is: recover what the last one left, hand out devices, learn a name, take devices back, begin the journal anew.
Each answered allocation is written to a descriptor outside the journal's directory: what stands there was acknowledged.
"""

import os
import signal
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final

import anyio

from nodeagent.components.allocations.component import Allocations
from nodeagent.components.allocations.journal_format import parse_journal
from nodeagent.components.allocations.journal_task import Journal
from nodeagent.components.allocations.ledger import Ledger, Node, replay
from nodeagent.components.allocations.recovery import Found, recover_ledger
from nodeagent.config.live import LiveSettings
from nodeagent.config.schema import Settings
from nodeagent.config.sections.plugin import JournalSettings
from nodeagent.core.channels.bus import Bus
from nodeagent.core.children.child_setup import die_with_parent
from nodeagent.core.clock import SystemClock
from nodeagent.core.conditions import Conditions
from nodeagent.edge.host.files.journal_disk import JOURNAL_NAME, JournalDisk
from nodeagent.edge.host.files.journal_file import JournalFile
from nodeagent.model.conditions import CATALOGUE
from nodeagent.model.errors import JournalUnavailable
from nodeagent.model.ids import DeviceId
from tests.fakes.journal_store import FakeKubelet
from tests.support.allocations import GPU, holding, listing

STEPS: Final = (
    "open",
    "write",
    "pwrite",
    "ftruncate",
    "fsync",
    "fdatasync",
    "link",
    "rename",
    "unlink",
    "mkdir",
    "rmdir",
)
"""The calls through which Python changes a disk."""

NODE: Final = Node("machine", "boot")
HISTORY_MAX: Final = 1000

Interference = Callable[[int, str], None]
"""Told of each step by number and name before it is made; may raise, or end the process."""


class Steps:
    """Counts the steps of this process, and lets somebody interfere with them."""

    def __init__(self, before: Interference, after: Interference) -> None:
        self.count = 0
        self._before, self._after = before, after

    def install(self) -> None:
        """From now on, in this process; there is no way back, so only for processes of their own."""
        for name in STEPS:
            setattr(os, name, self._counted(name, getattr(os, name)))

    def _counted(self, name: str, call: Callable[..., Any]) -> Callable[..., Any]:
        def step(*args: Any, **kwargs: Any) -> Any:
            self.count += 1
            number = self.count
            self._before(number, name)
            result = call(*args, **kwargs)
            self._after(number, name)
            return result

        return step


def kill_at(wanted: int, *, before: bool) -> Steps:
    """Steps of a process that dies, without a chance to do anything, just before or just after one of them."""

    def die(number: int, _: str) -> None:
        if number == wanted:
            os.kill(os.getpid(), signal.SIGKILL)

    def live(_: int, __: str) -> None:
        return

    return Steps(die if before else live, live if before else die)


def fail_at(wanted: int, code: int) -> Steps:
    """Steps of which one fails as the operating system would have it fail."""

    def fail(number: int, _: str) -> None:
        if number == wanted:
            raise OSError(code, os.strerror(code))

    def live(_: int, __: str) -> None:
        return

    return Steps(fail, live)


async def live_once(directory: Path, acknowledged: int, life: int) -> None:
    """One life; devices are named after it, so that each allocation of all lives is known apart."""
    kubelet = FakeKubelet()
    bus, clock = Bus(SystemClock()), SystemClock()
    settings = Settings(journal=JournalSettings(rotate_bytes=4096, history_entries=HISTORY_MAX))
    conditions, live = Conditions(bus, clock, CATALOGUE), LiveSettings(settings)
    journal = Journal(
        bus, conditions, clock, live, kubelet,  # type: ignore[arg-type]  # as far as it is used
        open_store=lambda: JournalDisk(directory), read_node=lambda: NODE,
    )  # fmt: skip
    keeper = Allocations(bus, conditions, clock, live, journal)

    async def allocate(name: str) -> None:
        device = DeviceId(f"GPU-{life}-{name}")
        try:
            await journal.record(GPU, (device,))
        except JournalUnavailable:
            return
        # not one of the steps: dying before it is dying after the step before it, and a reply never fails
        os.writev(acknowledged, [f"{device}\n".encode()])

    async with anyio.create_task_group() as tasks:
        await tasks.start(lambda task_status: keeper.run(task_status=task_status))
        await allocate("first")
        kubelet.listing = listing(holding("train", f"{life}-first"))
        await journal.identify(GPU, (DeviceId(f"GPU-{life}-first"),))
        # Large enough that this life begins its journal anew, after what earlier lives have left in it.
        for number in range(3):
            await allocate(f"padding-{number}-" + "x" * 3000 * 3 ** (life - 1))
        await allocate("last")
        tasks.cancel_scope.cancel()


def run_life(directory: Path, acknowledged: int, life: int) -> None:
    """The same, to the end, on an event loop of its own."""
    anyio.run(live_once, directory, acknowledged, life)


def read_ledger(directory: Path) -> tuple[Ledger, str]:
    """What the next agent would begin with, and what it would say is damaged."""
    current, previous, problem = JournalFile(directory, JOURNAL_NAME).read()
    recovered = recover_ledger(Found(current=current, previous=previous), *NODE, HISTORY_MAX)
    return recovered.ledger, "; ".join(filter(None, (recovered.damage, problem)))


def find_faults(directory: Path, acknowledged: str) -> list[str]:
    """What is wrong with what a life left: lost or doubled allocations, or a journal that cannot be read whole."""
    ledger, damage = read_ledger(directory)
    devices = [device for entry in ledger.entries.values() for device in entry.devices]
    faults = [f"damaged: {damage}"] if damage else []
    faults += [f"lost: {name[:40]}" for name in acknowledged.split() if name not in devices]
    faults += [f"doubled: {name[:40]}" for name in set(devices) if devices.count(name) > 1]
    current = directory / JOURNAL_NAME
    if current.exists():
        parsed = parse_journal(current.read_bytes())
        if replay(parsed.records, HISTORY_MAX) != ledger:
            faults.append("replaying the journal does not give the ledger")
    return faults


def in_child(work: Callable[[], None]) -> int:
    """Do it in a child process, and return how that ended: 0, or what is wrong."""
    child = os.fork()
    if child == 0:
        code = 1
        try:
            die_with_parent()
            work()
            code = 0
        except BaseException as error:  # noqa: BLE001  a child must not return into its parent's code
            sys.stderr.write(f"{type(error).__name__}: {error}\n")
        finally:
            sys.stderr.flush()
            os._exit(code)
    _, status = os.waitpid(child, 0)
    return os.waitstatus_to_exitcode(status)
