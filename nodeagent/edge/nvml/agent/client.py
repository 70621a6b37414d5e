"""The port `GpuSource` on real hardware: asks the worker GPU by GPU, so that one bad GPU never hides the others.

Owns the knowledge of each GPU between readings, and the order and deadlines of questions.
Refuses native calls (the worker's) and judgement (the components').
"""

from collections.abc import AsyncGenerator
from contextlib import AbstractAsyncContextManager, aclosing

import anyio
from anyio.abc import TaskStatus
from msgspec import structs

from nodeagent.core.children.child_process import ChildStatistics
from nodeagent.core.clock import Clock
from nodeagent.core.errors import WorkerError
from nodeagent.core.log.lines import get_logger
from nodeagent.edge.nvml.agent import protocol
from nodeagent.edge.nvml.agent.asker import Asker, GpuSilent, NvmlSettings
from nodeagent.edge.nvml.agent.command import render_environment
from nodeagent.edge.nvml.agent.connection import Connection, RequestFailed
from nodeagent.edge.nvml.agent.event_stream import EventStream
from nodeagent.edge.nvml.agent.protocol import Request, translate_failure
from nodeagent.edge.nvml.agent.sampling import sample_gpus
from nodeagent.edge.nvml.agent.topology import list_pairs, list_switches
from nodeagent.edge.nvml.agent.unlisted import find_unlisted, name_missing
from nodeagent.edge.nvml.agent.unread import keep_unread
from nodeagent.edge.nvml.agent.usage import UsageTotals
from nodeagent.edge.nvml.errors import UNLOADABLE
from nodeagent.model.driver import LibraryAnswer, PciFunction
from nodeagent.model.errors import DriverUnavailable
from nodeagent.model.gpu import Fabric, FabricPhase, Gpu, GpuReadout, MissingGpu
from nodeagent.model.ids import PciAddress
from nodeagent.model.ports import GpuEvent
from nodeagent.model.telemetry import GpuSample, NodeSample

FIRST_SERVES_SECONDS = 0.25
"""How long the enumeration that the driver was judged by serves whoever asks for the inventory because of it."""

_RENEW_FIRST_SECONDS, _RENEW_LONGEST_SECONDS = 60.0, 3600.0


class NvmlGpus:
    """The node's GPUs, by way of the worker process."""

    def __init__(self, settings: NvmlSettings, clock: Clock) -> None:
        self._settings, self._clock = settings, clock
        self._connection = Connection(
            settings.driver_root,
            settings.library,
            settings.open_timeout_seconds,
            render_environment(settings.environment),
            sysfs=settings.sysfs,
        )
        self._asker = Asker(self._connection, settings)
        self._gpus: dict[int, Gpu] = {}
        self._missing: dict[int, MissingGpu] = {}
        self._count = 0
        self._enumerating = anyio.Lock()
        self._levels: dict[frozenset[str], int | None] = {}
        self._usage = UsageTotals()
        self._known_unlisted: set[PciAddress] = set()
        self._listed_by = -1
        """The opening of the library whose list was compared with the bus."""
        self._levels_at, self._is_news = -_RENEW_LONGEST_SECONDS, True
        self._renewed_at = -_RENEW_FIRST_SECONDS
        self._renew_pause = _RENEW_FIRST_SECONDS
        self._first: tuple[float, int, GpuReadout] | None = None
        """The enumeration that the driver was judged by: when, in which opening of the library, and what it gave."""
        self._log = get_logger(component="nvml")

    async def run(self, *, task_status: TaskStatus[None] = anyio.TASK_STATUS_IGNORED) -> None:
        """Keep a worker at hand until cancelled."""
        async with anyio.create_task_group() as tasks:
            await self._connection.start(tasks)
            task_status.started()
            await anyio.sleep_forever()

    async def read_answer(self) -> LibraryAnswer:
        """Whether NVML works, for whoever judges the driver: a failure is an answer too.

        Raises:
            DriverStuck: no answer in time.
            DriverReleased: the driver was given up on purpose.
        """
        try:
            return await self._connection.open()
        except RequestFailed as failed:
            failure = failed.failure
            message = failure.message.removesuffix(f" (NVML code {failure.code})")  # the answer has it as a number
            return protocol.read_code(failure.code, message, failure.library_path)
        except DriverUnavailable as error:
            return protocol.read_code(UNLOADABLE, str(error))

    async def read_fabric_pending(self) -> tuple[str, ...]:
        """The UUIDs of GPUs with an incomplete registration with the fabric, among GPUs that answer.

        Raises:
            DriverError: No GPU at all can be asked.
        """
        if not self._gpus:
            readout = await self.read_inventory()
            self._first = (self._clock.monotonic(), self._connection.opened, readout)
            return tuple(gpu.uuid for gpu in readout.gpus if _is_pending(gpu.fabric))
        pending = []
        known = dict(self._gpus)
        for index in self._asker.plan_order(known):
            gpu = known[index]
            request = Request(do="fabric", gpu=gpu.pci.address, uuid=gpu.uuid)
            try:
                fabric = await self._asker.ask(index, request, protocol.FABRIC, "reading the fabric state")
            except (RequestFailed, GpuSilent):
                continue  # whether the GPU works is told by its sample
            if _is_pending(fabric):
                pending.append(gpu.uuid)
        return tuple(pending)

    async def read_inventory(self) -> GpuReadout:
        """Enumerate; a silent GPU keeps the last known identity, with the reason."""
        async with self._enumerating:
            first, self._first = self._first, None
            if first is not None and first[1] == self._connection.opened:
                age = self._clock.monotonic() - first[0]
                if age <= FIRST_SERVES_SECONDS:
                    return first[2]
            return await self._enumerate()

    async def _enumerate(self) -> GpuReadout:
        await self._renew_for_lost()
        readout = await self._list_once()
        unlisted = await self._find_unlisted(readout)
        fresh = {one.address for one in unlisted} - self._known_unlisted
        if fresh and self._listed_by == self._connection.opened:
            # A session of NVML lists what was there when it began: a card that came since is seen by a new one.
            await self._connection.renew()
            readout = await self._list_once()
            unlisted = await self._find_unlisted(readout)
        self._known_unlisted = {one.address for one in unlisted}
        self._listed_by = self._connection.opened
        return structs.replace(readout, missing=name_missing(readout.missing, unlisted))

    async def _find_unlisted(self, readout: GpuReadout) -> tuple[PciFunction, ...]:
        if self._settings.list_functions is None:
            return ()
        try:
            functions = await self._settings.list_functions()
        except WorkerError as error:
            self._log.warning("pci_bus_unreadable", reason=str(error))
            return ()
        return find_unlisted(functions, {gpu.pci.address for gpu in readout.gpus})

    async def _list_once(self) -> GpuReadout:
        await self._count_gpus()
        silent: GpuSilent | None = None
        answered = 0
        for index in self._asker.plan_order(range(self._count)):
            try:
                await self._read_gpu(index)
                answered += 1
            except GpuSilent as error:
                silent = error
        self._note_unasked()
        if silent is not None and not answered:
            raise silent.error
        await self._read_levels()
        gpus = [self._gpus[index] for index in sorted(self._gpus)]
        return GpuReadout(
            gpus=tuple(gpus),
            pairs=list_pairs(gpus, self._levels),
            switches=list_switches(gpus),
            missing=tuple(self._missing.values()),
        )

    async def read_sample(self) -> NodeSample:
        """Sample all known GPUs, trusted GPUs first."""
        if not self._gpus:
            await self.read_inventory()
        began, time_seconds = self._clock.monotonic(), self._clock.wall()
        known = dict(self._gpus)  # an enumeration may go on meanwhile
        if not known and self._missing:
            raise DriverUnavailable("sample GPUs", next(iter(self._missing.values())).reason)
        taken = await sample_gpus(self._asker, known, whole=self._plan_levels(began), extras=self._settings.extras())
        for answer in taken.answers:
            self._usage.note(answer)
        for index in known.keys() - taken.samples.keys():
            taken.samples[index] = GpuSample(uuid=known[index].uuid, lost=self._describe_silence(index), silent=True)
        return NodeSample(
            time_seconds=time_seconds,
            gpus=tuple(taken.samples[index] for index in sorted(taken.samples)),
            took_seconds=self._clock.monotonic() - began,
            call_count=taken.calls,
            access=self._usage.render(self._connection.totals()),
        )

    def _plan_levels(self, now: float) -> bool:
        """Whether the levels are due: by age, or because of a driver report."""
        is_due = self._is_news or now - self._levels_at >= self._settings.levels_seconds()
        if is_due:
            self._levels_at, self._is_news = now, False
        return is_due

    async def events(self) -> AsyncGenerator[GpuEvent, None]:
        """What the driver reports; after each gap in the watch an event of kind `watch_resumed` for each GPU.

        Raises:
            DriverError: no GPU can be watched, or the driver was released.
        """
        if not self._gpus:
            await self.read_inventory()
        async with aclosing(EventStream(self._connection, self._asker, self._gpus).run()) as events:
            async for event in events:
                self._is_news = True
                yield event

    def set_aside(self) -> AbstractAsyncContextManager[None]:
        """Hold no handle for as long as the block lasts: a GPU with a changing mode must be unused."""
        return self._connection.set_aside()

    async def release(self, reason: str) -> None:
        """End the worker and all handles."""
        await self._connection.release(reason)
        self._log.info("driver_released", reason=reason)

    async def resume(self) -> None:
        """Start a new worker, which loads the present library."""
        self._forget_gpus(0)
        self._levels.clear()
        await self._connection.resume()
        self._log.info("driver_resumed")

    def statistics(self) -> ChildStatistics | None:
        """How the worker process does."""
        return self._connection.statistics()

    async def _renew_for_lost(self) -> None:
        """Ask a new worker now and then: a process that saw a GPU go may never see the GPU come back."""
        now = self._clock.monotonic()
        is_any_lost = bool(self._missing) or any(
            gpu.lost and not self._asker.suspects.is_suspect(index) for index, gpu in self._gpus.items()
        )
        if not is_any_lost:
            self._renew_pause = _RENEW_FIRST_SECONDS
        elif now - self._renewed_at >= self._renew_pause:
            self._renewed_at = now
            self._renew_pause = min(2 * self._renew_pause, _RENEW_LONGEST_SECONDS)
            await self._connection.renew()

    async def _count_gpus(self) -> None:
        timeout_seconds = self._settings.call_timeout_seconds
        try:
            count = await self._connection.ask(Request(do="count"), protocol.COUNTED, timeout_seconds, "counting GPUs")
        except RequestFailed as failed:
            raise translate_failure(failed.failure) from failed
        if count != self._count:
            self._forget_gpus(count or 0)

    def _forget_gpus(self, count: int) -> None:
        """Forget all GPUs: with another number of GPUs an index may mean another GPU."""
        self._count = count
        self._asker.forget()
        self._gpus.clear()
        self._missing.clear()

    async def _read_gpu(self, index: int) -> None:
        """Ask one GPU for all facts.

        Raises:
            GpuSilent: The GPU did not answer.
        """
        try:
            gpu = await self._asker.ask(index, Request(do="gpu", index=index), protocol.GPU, "enumerating")
        except RequestFailed as failed:
            self._note_lost(index, str(failed))
            return
        assert gpu is not None
        self._gpus[index] = gpu = keep_unread(self._gpus.get(index), gpu)
        self._missing.pop(index, None)
        self._asker.note_persistent(index, is_persistent=gpu.persistence_mode is True)

    def _note_lost(self, index: int, reason: str) -> None:
        if index in self._gpus:
            self._gpus[index] = structs.replace(self._gpus[index], lost=reason, unreadable=())
        else:
            # Its place on the bus is not known: whoever knows the bus finds it by what is missing.
            self._missing[index] = MissingGpu(
                address=PciAddress(""), device_id=0, reason=f"GPU at index {index}: {reason}"
            )

    def _note_unasked(self) -> None:
        for index in range(self._count):
            reason = self._asker.suspects.describe(index)
            if reason:
                self._note_lost(index, reason)

    def _describe_silence(self, index: int) -> str:
        return self._asker.suspects.describe(index) or "it was not asked: an enumeration found another set of GPUs"

    async def _read_levels(self) -> None:
        """The topology levels, asked once for each pair: topology is constant while GPUs are present."""
        whole = [(index, gpu) for index, gpu in sorted(self._gpus.items()) if not gpu.lost]
        for place, (index, gpu) in enumerate(whole):
            others = [
                other
                for _, other in whole[place + 1 :]
                if frozenset({gpu.pci.address, other.pci.address}) not in self._levels
            ]
            if not others:
                continue
            targets = tuple((str(other.pci.address), str(other.uuid)) for other in others)
            request = Request(do="paths", gpu=gpu.pci.address, uuid=gpu.uuid, others=targets)
            try:
                levels = await self._asker.ask(index, request, protocol.PATHS, "reading paths")
            except (RequestFailed, GpuSilent) as error:
                self._log.warning("gpu_paths_unreadable", gpu=gpu.uuid, reason=str(error))
                continue
            for other, level in zip(others, levels or (), strict=True):
                self._levels[frozenset({gpu.pci.address, other.pci.address})] = level


def _is_pending(fabric: Fabric | None) -> bool:
    return fabric is not None and (fabric.phase is not FabricPhase.COMPLETED or fabric.status_code != 0)
