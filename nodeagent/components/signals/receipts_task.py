"""Writes the receipts of containers: their devices before they start, and the faults of the devices as soon as known.

Owns the condition `receipts-unwritten` and the state `ReceiptCounts`. A receipt begins with the journal's record of the
devices and ends some time after it; one that stands already is adopted by the next agent, and written only where
something differs.
"""

from collections.abc import Callable, Sequence
from typing import Final

import anyio
from anyio.abc import TaskStatus

from nodeagent.components.signals.receipts import (
    FAULTS,
    GPUS,
    FaultsFile,
    GpusFile,
    Holding,
    ReceiptGpu,
    count_users,
    judge,
    list_holdings,
    note_fault,
    number_gpus,
    parse_faults,
    parse_gpus,
    render_file,
)
from nodeagent.config.live import LiveSettings
from nodeagent.core.channels.bus import Bus
from nodeagent.core.channels.mailbox import Waker
from nodeagent.core.clock import Clock
from nodeagent.core.conditions import Conditions
from nodeagent.core.life.ticker import Ticker
from nodeagent.core.log.lines import get_logger
from nodeagent.model.allocation import AllocationTable
from nodeagent.model.claims import ReadyClaims
from nodeagent.model.cluster import ReceiptCounts
from nodeagent.model.errors import NodeagentError
from nodeagent.model.events import GpuFaultReported
from nodeagent.model.gpu import Inventory
from nodeagent.model.health import HealthReport
from nodeagent.model.journal import FractionTable
from nodeagent.model.plugin import ContainerMount
from nodeagent.model.ports import ReceiptFiles
from nodeagent.model.proof import GpuProofs
from nodeagent.rules.container_receipts import list_mount_points, plan_receipt_mount

UNWRITTEN: Final = "receipts-unwritten"
RETRY_SECONDS: Final = 5.0
SWEEP_SECONDS: Final = 30.0
"""Pause between looks for folders without a holder; a folder goes after two such looks."""
WATCHED: Final = (AllocationTable, FractionTable, ReadyClaims, Inventory, HealthReport)


class ReceiptFolders:
    """The folders and what is in them; implements the port `ContainerReceipts`, and outlives the component."""

    def __init__(self, bus: Bus, conditions: Conditions, live: LiveSettings, files: ReceiptFiles) -> None:
        self._bus, self._conditions, self._live, self._files = bus, conditions, live, files
        self._standing = set[str]()
        """The folders that exist."""
        self._gpus: dict[str, tuple[ReceiptGpu, ...]] = {}
        self._faults: dict[str, FaultsFile] = {}
        self._numbered: dict[str, tuple[tuple[str, ...], int]] = {}
        """By folder the devices, and the generation of the inventory, of the present numbers."""
        self._judged_by: tuple[Inventory | None, HealthReport | None] = (None, None)
        self._unwritten: dict[str, None] = {}
        self._unheld = frozenset[str]()
        self._counts = ReceiptCounts()
        self.has_unwritten = Waker()
        self._log = get_logger(component=Receipts.name)

    async def open_receipt(
        self, name: str, devices: Sequence[str], mounts: Sequence[ContainerMount]
    ) -> tuple[ContainerMount, ...]:
        """Make the folder of a container about to start."""
        if not self._live.now.signals.receipts:
            return ()
        inventory = self._bus.read(Inventory)
        if inventory is not None:
            self._number(name, tuple(devices), inventory)
        try:
            await self._files.open(name, self._render(name), list_mount_points(mounts))
        except NodeagentError as error:
            self._log.warning("receipt_not_opened", name=name, error=str(error))
            self._count(failed=1)
            self._conditions.set(UNWRITTEN, detail=str(error))
            return ()
        self._count(written=1)
        self._standing.add(name)
        self._unwritten.pop(name, None)
        self._show_trouble()
        return (plan_receipt_mount(self._files.locate(name)),)

    async def adopt(self) -> None:
        """Read what an earlier agent, or an earlier life of the component, has written."""
        try:
            found = await self._files.read()
        except NodeagentError as error:
            self._log.warning("receipts_not_read", error=str(error))
            self._conditions.set(UNWRITTEN, detail=str(error))
            return
        self._standing.update(found)
        for name, files in found.items():
            if (gpus := parse_gpus(files.get(GPUS, b""))) and name not in self._gpus:
                self._gpus[name] = gpus
            if (faults := parse_faults(files.get(FAULTS, b""))) is not None and name not in self._faults:
                self._faults[name] = faults

    def take(self, holdings: dict[str, Holding], inventory: Inventory, health: HealthReport | None) -> None:
        """Number new devices, and judge all after news; what differs is written soon."""
        is_news = self._judged_by[0] is not inventory or self._judged_by[1] is not health
        self._judged_by = (inventory, health)
        for name, holding in holdings.items():
            # A receipt never begins while the settings give none, and one that stands is kept up.
            is_kept = name in self._standing or self._live.now.signals.receipts
            if is_kept and (self._number(name, holding.devices, inventory) or is_news):
                self._judge(name, inventory, health)
        self.has_unwritten.wake()

    def note_fault(
        self,
        fault: GpuFaultReported,
        holdings: dict[str, Holding],
        inventory: Inventory,
        health: HealthReport | None,
        wall_seconds: float,
    ) -> None:
        """Take a fault into the receipts of all containers with the device."""
        users, hit = count_users(holdings.values()), set(fault.devices)
        for name, holding in holdings.items():
            if name in self._gpus and not hit.isdisjoint(holding.devices):
                before = self._faults.get(name)
                known = before.faults if before is not None else ()
                lines = note_fault(known, self._gpus[name], fault, users, wall_seconds)
                self._faults[name] = FaultsFile(devices=before.devices if before is not None else (), faults=lines)
                self._unwritten[name] = None
                self._judge(name, inventory, health)
        self.has_unwritten.wake()

    def _number(self, name: str, devices: tuple[str, ...], inventory: Inventory) -> bool:
        """Number the devices of a receipt; returns whether the numbers are new."""
        origin = (devices, inventory.generation)
        if self._numbered.get(name) == origin or not (
            gpus := number_gpus(devices, inventory, self._bus.read(GpuProofs))
        ):
            return False
        self._numbered[name] = origin
        is_new = gpus != self._gpus.get(name) or name not in self._standing
        if is_new:
            self._gpus[name] = gpus
            self._unwritten[name] = None
        return is_new

    def _judge(self, name: str, inventory: Inventory, health: HealthReport | None) -> None:
        before = self._faults.get(name)
        lines = before.faults if before is not None else ()
        after = judge(self._gpus.get(name, ()), lines, before, inventory, health)
        if after is not None and after != before:
            self._faults[name] = after
            self._unwritten[name] = None

    def _render(self, name: str) -> dict[str, bytes]:
        files: dict[str, bytes] = {}
        if gpus := self._gpus.get(name):
            files[GPUS] = render_file(GpusFile(gpus=gpus))
        if (faults := self._faults.get(name)) is not None:
            files[FAULTS] = render_file(faults)
        return files

    async def write_forever(self) -> None:
        """Write whatever differs at once; what cannot be written is tried again."""
        while True:
            await self.has_unwritten.wait()
            while self._unwritten:
                names, self._unwritten = tuple(self._unwritten), {}
                try:
                    await self._files.write({name: self._render(name) for name in names})
                except NodeagentError as error:
                    self._unwritten = {**dict.fromkeys(names), **self._unwritten}
                    self._log.warning("receipts_not_written", count=len(names), error=str(error))
                    self._count(failed=len(names))
                    self._conditions.set(UNWRITTEN, detail=str(error))
                    await anyio.sleep(RETRY_SECONDS)
                else:
                    self._count(written=len(names))
                    self._standing.update(names)
                    self._show_trouble()

    def _count(self, *, written: int = 0, failed: int = 0) -> None:
        before = self._counts
        self._counts = ReceiptCounts(written=before.written + written, failed=before.failed + failed)
        self._bus.publish_state(self._counts, source=Receipts.name)

    def _show_trouble(self) -> None:
        if not self._unwritten:
            self._conditions.clear(UNWRITTEN)

    async def sweep(self, holdings: dict[str, Holding]) -> None:
        """Remove folders that had no holder at the last look either."""
        try:
            unheld = frozenset(await self._files.list_names()) - holdings.keys()
            for name in unheld & self._unheld:
                await self._files.remove(name)
                self._forget(name)
            self._unheld = unheld
        except NodeagentError as error:
            self._log.warning("receipt_not_removed", error=str(error))

    def _forget(self, name: str) -> None:
        self._standing.discard(name)
        for known in (self._gpus, self._faults, self._numbered, self._unwritten):
            known.pop(name, None)


class Receipts:
    """The component."""

    name = "receipts"

    def __init__(
        self, bus: Bus, clock: Clock, folders: ReceiptFolders, read_fractions: Callable[[], FractionTable | None]
    ) -> None:
        """`read_fractions` is `None` as long as the journal is unread: then nobody knows the holders."""
        self._bus, self._clock, self._folders, self._read_fractions = bus, clock, folders, read_fractions
        self._is_known, self._holdings = anyio.Event(), dict[str, Holding]()

    async def run(self, *, task_status: TaskStatus[None]) -> None:
        """Write receipts until cancelled."""
        await self._folders.adopt()
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(self._follow_holders, name="receipts holders")
            tasks.start_soon(self._folders.write_forever, name="receipts writes")
            tasks.start_soon(self._sweep_forever, name="receipts sweep")
            with self._bus.listen(GpuFaultReported, client=self.name) as faults:
                task_status.started()
                async for envelope in faults:
                    await self._is_known.wait()
                    self._note_fault(envelope.value)

    async def _follow_holders(self) -> None:
        with self._bus.watch_all(*WATCHED, client=f"{self.name} holders") as changes:
            async for _ in changes:
                inventory = self._bus.read(Inventory)
                if self._look() and inventory is not None:
                    self._is_known.set()
                    # At once: the pod after this one is not asked about yet, and would have to wait.
                    self._folders.take(self._holdings, inventory, self._bus.read(HealthReport))

    def _look(self) -> bool:
        """Look who holds what; returns whether the journal tells."""
        if self._read_fractions() is None:
            return False
        read = self._bus.read
        self._holdings = list_holdings(read(AllocationTable), read(FractionTable), read(ReadyClaims))
        return True

    def _note_fault(self, fault: GpuFaultReported) -> None:
        inventory, health = self._bus.read(Inventory), self._bus.read(HealthReport)
        assert inventory is not None
        self._look()
        self._folders.note_fault(fault, self._holdings, inventory, health, self._clock.wall())

    async def _sweep_forever(self) -> None:
        async for _ in Ticker(SWEEP_SECONDS):
            if self._is_known.is_set() and self._look():
                await self._folders.sweep(self._holdings)
