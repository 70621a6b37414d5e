"""Looks now and then whether what was promised and bound still is, and gives back what has ended.

Refuses to take one source's word for an end, and to take silence for one.
"""

from collections.abc import Awaitable, Callable, Collection, Mapping, Sequence
from functools import partial
from typing import Final, NamedTuple, TypeVar

import anyio
from msgspec.structs import replace

from nodeagent.components.fractions.decide import PartView, describe_binding, list_file_names, name_files, read_name
from nodeagent.components.fractions.tending.adopt import Adoption, list_unknown_names, plan_adoptions
from nodeagent.components.fractions.tending.foreign import (
    ForeignProcess,
    describe_foreign,
    find_foreign,
    list_unnamed_pods,
    list_unread,
    sum_foreign,
)
from nodeagent.components.fractions.tending.judge import (
    PartLook,
    find_identities,
    judge_all,
    list_halves,
    list_users_of_library,
)
from nodeagent.components.fractions.tending.sources import KubeletRecords, Sources, list_or_explain
from nodeagent.config.live import LiveSettings
from nodeagent.core.channels.bus import Bus
from nodeagent.core.channels.mailbox import Waker
from nodeagent.core.clock import Clock
from nodeagent.core.conditions import Conditions
from nodeagent.core.life.ticker import Ticker
from nodeagent.core.log.lines import get_logger
from nodeagent.model.errors import AllocationError, NodeagentError
from nodeagent.model.events import PartReleased
from nodeagent.model.ids import GpuUuid
from nodeagent.model.journal import Binding, Enforcement, GpuPart, PartTable
from nodeagent.model.parts import PartLimit
from nodeagent.model.ports import (
    PartFolders,
    PartLedger,
    PartSpecs,
    PodListing,
)
from nodeagent.model.telemetry import NodeSample
from nodeagent.rules.placement.space import CORES

T = TypeVar("T")

_SILENT: Final = "parts-not-given-back"
TEND_SECONDS: Final = 10.0
"""Pause between looks; what seems to have ended must seem so twice."""
FINISHED_LOOKS: Final = 5
FINISHED_SECONDS: Final = 1.0
"""So often, and so far apart, a pod that has finished is looked at until nothing is left of it; then as all others."""


class Files(NamedTuple):
    """What a container is given as files."""

    specs: PartSpecs
    folders: PartFolders


class Tending:
    """A task of the component `fractions`."""

    def __init__(
        self,
        bus: Bus,
        conditions: Conditions,
        clock: Clock,
        ledger: PartLedger,
        files: Files,
        kubelet: KubeletRecords,
        sources: Sources,
        *,
        live: LiveSettings,
        turn: anyio.Lock,
        note: Callable[[PodListing], None],
        wake: Callable[[], None],
        view: Callable[[], PartView],
        finished: Callable[[], Collection[str]],
    ) -> None:
        """Wire it up.

        Args:
            bus: where what has ended is told.
            conditions: where this part's conditions are set.
            clock: the time.
            ledger: the journal's part for what is given here.
            files: what containers were given as files.
            kubelet: who holds what by the kubelet's own records.
            sources: who else knows what containers there are.
            live: the settings in force.
            turn: held by whoever changes what is bound.
            note: told of each list that the kubelet gives.
            wake: called when what others use of the GPUs has changed.
            view: what is known of the GPUs that are given in parts.
            finished: the uids of pods that have finished, by the API server.
        """
        self._bus, self._conditions, self._clock = bus, conditions, clock
        self._ledger, self._files, self._kubelet, self._sources = ledger, files, kubelet, sources
        self._finished = finished
        self._live, self._turn, self._note, self._wake, self._view = live, turn, note, wake, view
        self.foreign: Mapping[GpuUuid, int] = {}
        """By GPU the bytes that programs use which were given nothing."""
        self._found: tuple[ForeignProcess, ...] = ()
        self._foreign_pods: Mapping[str, str] = {}
        """The names of pods that such programs are of, by uid."""
        self._over_since: Mapping[int, float] = {}
        self._promised, self._has_promised = list[str](), Waker()
        self._log = get_logger(component="fractions")

    async def run(self) -> None:
        """Look now and then whether what is promised and bound still is."""
        is_first = True
        async for _ in Ticker(TEND_SECONDS):
            await self._account()
            # At the beginning also where nothing is known: the kubelet may know of what the journal has lost.
            if is_first or self._table().reservations:
                is_first = False
                await self._tend()
            if not self._table().reservations:
                self._conditions.clear(_SILENT)

    def note_promised(self, cdi_name: str) -> None:
        """A container will start by this name, and wait for less when its folder is there by then."""
        self._promised.append(read_name(cdi_name))
        self._has_promised.wake()

    async def prepare_promised(self) -> None:
        """Make the folders of what was promised; one that cannot be made is told of at the container's start."""
        while True:
            await self._has_promised.wait()
            while self._promised:
                await _try(partial(self._files.folders.prepare, self._promised.pop(0)))

    def has_finished(self) -> bool:
        """Whether a pod still has parts although it has finished."""
        finished = self._finished()
        return bool(finished) and any(each.pod.uid in finished for each in self._table().bindings.values())

    async def end_finished(self, looks: int = FINISHED_LOOKS) -> None:
        """Give back what pods have that have finished, as soon as all others agree."""
        for number in range(looks):
            if not self.has_finished():
                return
            if number:
                await anyio.sleep(FINISHED_SECONDS)
            await self._tend()

    async def _account(self) -> None:
        """See what is used by programs that were given nothing: it is not to be promised."""
        sample = self._bus.latest(NodeSample)
        if self._sources.places is None or sample is None or sample.value.is_old(self._clock.wall()):
            return
        pids = [process.pid for gpu in sample.value.gpus for process in gpu.processes]
        places = await self._sources.places.read_places(pids)
        ignored = self._live.now.fractions.ignored_processes
        found = find_foreign(self._view().gpus, self._table(), sample.value, places, ignored, self._found)
        self._found = found
        unnamed = list_unnamed_pods(found, self._foreign_pods)
        if unnamed and (containers := await _try(self._sources.list_containers)) is not None:
            self._foreign_pods = {one.pod_uid: f"{one.namespace}/{one.pod}" for one in containers if one.pod}
        self._conditions.replace("part-foreign-use", describe_foreign(found, self._foreign_pods))
        foreign = sum_foreign(found)
        if foreign != self.foreign:
            self.foreign = foreign
            self._log.info("foreign_use_changed", gpus={str(gpu): used for gpu, used in foreign.items()})
            self._wake()

    async def _tend(self) -> None:
        """One look at all sources; what they agree has ended is given back."""
        look = await self._look()
        async with self._turn:
            if self._ledger.parts() is None:
                # Whoever keeps the journal has failed meanwhile: everything would seem unknown to it.
                return
            await self._adopt_all(look)
            table = self._table()
            judgement = judge_all(table, look, self._over_since)
            self._over_since = judgement.over_since
            ended = judgement.list_ended()
            try:
                if ended:
                    await self._ledger.release(ended)
            except AllocationError as error:
                self._log.warning("parts_not_written", error=str(error))
                return
        await self._name(look)
        await self._tell_without_library(look)
        await self._prune(look)
        orphans = {str(number): describe_binding(table.bindings[number]) for number in judgement.list_orphans()}
        self._conditions.replace("part-orphaned", orphans)
        if look.silence:
            self._conditions.set(_SILENT, detail=look.silence)
        else:
            self._conditions.clear(_SILENT)
        if look.listing is not None:
            self._note(look.listing)
        for number, why in ended.items():
            binding = table.bindings.get(number)
            self._bus.publish_fact(PartReleased(number=number, reason=why), source="fractions")
            if binding is not None:
                await self.remove_files(binding)

    async def name_all(self) -> bool:
        """Write down whose the bindings are of which half of that was known when their containers started.

        Returns:
            Whether that is known of all of them now.
        """
        listing = await _try(self._kubelet.read_pods)
        checkpoint = await _try(self._kubelet.read_checkpoint)
        await self._name(PartLook(listing, checkpoint, None, None, self._clock.monotonic()))
        return not list_halves(self._table())

    async def _name(self, look: PartLook) -> None:
        """Write down the names that are known now.

        Each in a turn of its own: there may be a hundred, and a container that starts waits for none of them.
        """
        for told in find_identities(self._table(), look):
            async with self._turn:
                table = self._table()
                known = table.bindings.get(told.number)
                if known is None:
                    continue
                named = replace(known, pod=told.pod)
                try:
                    # Nothing but the name changes, so what is given is all that the account has to allow.
                    await self._ledger.bind(named, [table.sum_parts(part.gpu) for part in named.parts])
                except AllocationError as error:
                    self._log.warning("parts_not_written", error=str(error))
                    return

    async def _tell_without_library(self, look: PartLook) -> None:
        """Name the containers whose pods use a GPU, and in which the library that holds them never came up."""
        found: dict[str, str] = {}
        for binding in list_users_of_library(self._table(), look):
            # Whatever makes it unreadable, nothing of the library is seen in it.
            if not await _try(partial(self._files.folders.is_used, name_files(binding))):
                found[str(binding.number)] = describe_binding(binding)
        self._conditions.replace("part-library-absent", found)

    async def _prune(self, look: PartLook) -> None:
        """Take away what was left of containers that have ended, once it is sure that nobody is to be adopted."""
        if look.listing is None or look.checkpoint is None:
            return
        names = await _try(self._files.folders.list_names) or ()
        table = self._ledger.parts()
        if table is None:
            return
        known = list_file_names(table)
        for name in (name for name in names if name not in known):
            try:
                await self._files.specs.remove_part(name)
                await self._files.folders.remove(name)
            except NodeagentError as error:
                self._log.warning("part_files_left", name=name, error=str(error))

    async def _adopt_all(self, look: PartLook) -> None:
        """Take in what the kubelet holds and the journal does not know of."""
        view, limits = self._view(), dict[str, tuple[PartLimit, ...]]()
        for name in list_unknown_names(self._table(), look, view):
            if told := await _try(partial(self._files.folders.read, name)):
                limits[name] = told
        for adoption in plan_adoptions(self._table(), look, view, limits):
            try:
                await self._adopt(adoption)
            except AllocationError as error:
                self._log.warning("part_not_adopted", pod=adoption.pod.name, error=str(error))

    async def _adopt(self, adoption: Adoption) -> None:
        promised = [await self._ledger.reserve(*promise) for promise in adoption.promises]
        self._log.warning("part_adopted", pod=adoption.pod.name, container=adoption.container, source=adoption.source)
        if not adoption.parts:
            return
        binding = Binding(
            number=0,
            reservations=tuple(each.number for each in promised),
            pod=adoption.pod,
            container=adoption.container,
            parts=adoption.parts,
            enforcement=await self._guess_enforcement(promised[0].cdi_name, adoption.parts),
            since_seconds=self._clock.wall(),
            cdi_name=promised[0].cdi_name,
            why=f"found after the journal was lost, by {adoption.source}",
            confirmed_by=("kubelet", adoption.source),
        )
        await self._ledger.bind(binding, None)

    async def _guess_enforcement(self, cdi_name: str, parts: Sequence[GpuPart]) -> Enforcement:
        """Without it a daemon through which somebody works is ended, and what starts again is held by nothing."""
        if any(part.cores >= CORES for part in parts):
            return Enforcement.ADVISE
        if await _try(partial(self._files.folders.is_used, read_name(cdi_name))):
            return Enforcement.LIBRARY
        usual = Enforcement(self._live.now.fractions.enforcement)
        return Enforcement.ADVISE if usual is Enforcement.MPS and len(parts) > 1 else usual

    async def _look(self) -> PartLook:
        """Ask everybody; who does not answer is told apart from who has nothing to say."""
        now, finished = self._clock.monotonic(), self._finished()
        listing = await _try(self._kubelet.read_pods)
        checkpoint = await _try(self._kubelet.read_checkpoint)
        containers, silence = await list_or_explain(self._sources)
        users, unread = await self._find_users()
        return PartLook(listing, checkpoint, containers, users, now, finished, unread, silence)

    async def _find_users(self) -> tuple[Mapping[GpuUuid, frozenset[str]] | None, frozenset[GpuUuid]]:
        """By GPU the pods whose processes use it, `None` where the driver does not say; and of which it does not."""
        if self._sources.places is None:
            return {}, frozenset()
        sample = self._bus.latest(NodeSample)
        if sample is None or sample.value.is_old(self._clock.wall()):
            return None, frozenset()
        by_gpu = {gpu.uuid: [process.pid for process in gpu.processes] for gpu in sample.value.gpus}
        places = await self._sources.places.read_places([pid for pids in by_gpu.values() for pid in pids])
        users = {
            gpu: frozenset(places[pid].pod_uid for pid in pids if pid in places) for gpu, pids in by_gpu.items() if pids
        }
        return users, list_unread(sample.value)

    async def change(
        self, living: Binding, changed: Binding, capacities: Sequence[GpuPart], limits: Sequence[PartLimit]
    ) -> None:
        """Give a running container other limits; one that cannot be told of them keeps those that it has.

        Raises:
            NodeagentError: it keeps them.
        """
        await self._ledger.bind(changed, capacities)
        try:
            await self._files.folders.write(name_files(changed), limits)
        except NodeagentError:
            # It goes on with what it was told before, so that must not be given to anybody else.
            await self._ledger.bind(living, None)
            raise

    async def remove_files(self, binding: Binding) -> None:
        """What is left of a container that has ended; what cannot be removed now is looked for again later."""
        try:
            await self._files.specs.remove_part(name_files(binding))
            await self._files.folders.remove(name_files(binding))
        except NodeagentError as error:
            self._log.warning("part_files_left", binding=binding.number, error=str(error))

    def _table(self) -> PartTable:
        """What is promised and bound; nothing while nobody knows, and then nothing is done about it."""
        return self._ledger.parts() or PartTable()


async def _try(ask: Callable[[], Awaitable[T]]) -> T | None:
    """The answer; `None` where there is none."""
    try:
        return await ask()
    except NodeagentError:
        return None
