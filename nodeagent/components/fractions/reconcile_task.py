"""Compares reservations and bindings with the node now and then, and releases ended fractions.

Refuses to believe a single source about an end, and to take silence for an end.
"""

from collections.abc import Callable, Collection, Mapping, Sequence
from functools import partial
from typing import Final, NamedTuple

import anyio
from msgspec.structs import replace

from nodeagent.components.fractions.adopt import Adoption, list_unknown_names, plan_adoptions
from nodeagent.components.fractions.decide import FractionView, describe_binding, list_file_names, name_files, read_name
from nodeagent.components.fractions.judge import (
    FractionPoll,
    find_identities,
    judge_all,
    list_halves,
    list_users_of_library,
)
from nodeagent.components.fractions.poll_task import SourcePoller, ask_if_possible
from nodeagent.core.channels.bus import Bus
from nodeagent.core.channels.mailbox import Waker
from nodeagent.core.clock import Clock
from nodeagent.core.conditions import Conditions
from nodeagent.core.life.ticker import Ticker
from nodeagent.core.log.lines import get_logger
from nodeagent.model.errors import AllocationError, NodeagentError
from nodeagent.model.events import FractionReleased
from nodeagent.model.fractions import FractionLimit
from nodeagent.model.journal import Binding, Enforcement, FractionTable, GpuFraction
from nodeagent.model.ports import (
    ContainerReceipts,
    DeviceFractionSpecs,
    FractionFolders,
    FractionJournal,
    FractionSpecs,
    PodListing,
    VgpuLibrary,
)
from nodeagent.rules.ids import is_of_class
from nodeagent.rules.placement.space import CORES

_SILENT: Final = "parts-not-given-back"
TEND_SECONDS: Final = 10.0
"""Pause between polls; an end must be seen twice."""
FINISHED_POLLS: Final = 5
FINISHED_SECONDS: Final = 1.0
"""How often, and how far apart, a finished pod is polled until all of it is gone; then with all others."""


class Files(NamedTuple):
    """The files by which fractions reach containers."""

    specs: Callable[[], FractionSpecs]
    """The CDI specifications."""
    folders: FractionFolders
    """The limits of each container, and its use."""
    library: VgpuLibrary
    device_specs: Callable[[], DeviceFractionSpecs] | None = None
    """The CDI specifications of fractions of classes' devices; `None` where no class is divisible."""
    receipts: ContainerReceipts | None = None
    """What containers read about their GPUs; `None` where containers get nothing to read."""

    def find_specs(self, binding: Binding) -> FractionSpecs:
        """The specifications for the binding's devices."""
        if self.device_specs is not None and is_of_class(binding.parts[0].gpu):
            return self.device_specs()
        return self.specs()


class LockedJournal(NamedTuple):
    """The journal of fractions, and the lock for changes of bindings that follow from what was read."""

    ledger: FractionJournal
    turn: anyio.Lock

    @property
    def table(self) -> FractionTable:
        """Reservations and bindings; empty while the journal is unread, so no action follows."""
        return self.ledger.parts() or FractionTable()


class FractionReconciler:
    """A task of the component `fractions`."""

    def __init__(
        self,
        bus: Bus,
        conditions: Conditions,
        clock: Clock,
        journal: LockedJournal,
        files: Files,
        poller: SourcePoller,
        *,
        note: Callable[[PodListing], None],
        views: Callable[[], Sequence[FractionView]],
    ) -> None:
        """`note` is called with each list of the kubelet; `views` finds the devices given in fractions."""
        self._bus, self._conditions, self._clock, self._journal = bus, conditions, clock, journal
        self._ledger, self._turn = journal
        self._files, self._poller, self._note, self._views = files, poller, note, views
        self._over_since: Mapping[int, float] = {}
        self._promised, self._has_promised = list[str](), Waker()
        self._log = get_logger(component="fractions")

    async def run(self) -> None:
        """Poll now and then whether reservations and bindings still stand."""
        is_first = True
        async for _ in Ticker(TEND_SECONDS):
            # At the beginning also with an empty journal: the kubelet may hold ids that the journal has lost.
            if is_first or self._journal.table.reservations:
                is_first = False
                await self._tend()
            if not self._journal.table.reservations:
                self._conditions.clear(_SILENT)

    def note_promised(self, cdi_name: str) -> None:
        """Note the name of a container before its start, so that the folder is there by then."""
        self._promised.append(read_name(cdi_name))
        self._has_promised.wake()

    async def prepare_promised(self) -> None:
        """Make the folders of reservations; a failure is reported at the container's start."""
        while True:
            await self._has_promised.wait()
            while self._promised:
                await ask_if_possible(partial(self._files.folders.prepare, self._promised.pop(0)))

    def has_finished(self) -> bool:
        """Whether a finished pod still has fractions."""
        finished = self._poller.list_finished()
        return bool(finished) and any(each.pod.uid in finished for each in self._journal.table.bindings.values())

    async def end_finished(self, looks: int = FINISHED_POLLS) -> None:
        """Release the fractions of finished pods as soon as all other sources agree."""
        for number in range(looks):
            if not self.has_finished():
                return
            if number:
                await anyio.sleep(FINISHED_SECONDS)
            await self._tend()

    async def _tend(self) -> None:
        """Poll all sources once, and release fractions that have ended by agreement."""
        look = await self._poller.poll()
        async with self._turn:
            if self._ledger.parts() is None:
                # The journal's component has failed meanwhile: all ids would seem unknown.
                return
            await self._adopt_all(look)
            table = self._journal.table
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
        await self._report_without_library(look)
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
            self._bus.publish_fact(FractionReleased(number=number, reason=why), source="fractions")
            if binding is not None:
                await self.remove_files(binding)

    async def name_all(self) -> bool:
        """Record the pods of bindings whose name or uid was unknown at their containers' start.

        Returns:
            Whether all bindings have name and uid now.
        """
        await self._name(await self._poller.poll_kubelet())
        return not list_halves(self._journal.table)

    async def _name(self, look: FractionPoll) -> None:
        """Record newly known names.

        Each takes the lock anew: a hundred names may come, and a starting container does not wait for the rest.
        """
        for told in find_identities(self._journal.table, look):
            async with self._turn:
                table = self._journal.table
                known = table.bindings.get(told.number)
                if known is None:
                    continue
                named = replace(known, pod=told.pod)
                try:
                    # Only the name changes, so the given amounts are all that the ledger has to allow.
                    await self._ledger.bind(named, [table.sum_fractions(fraction.gpu) for fraction in named.parts])
                except AllocationError as error:
                    self._log.warning("parts_not_written", error=str(error))
                    return

    async def _report_without_library(self, look: FractionPoll) -> None:
        """Raise a condition for containers whose pods use a GPU while the vGPU library never came up."""
        found: dict[str, str] = {}
        for binding in list_users_of_library(self._journal.table, look):
            # An unreadable usage file, whatever the cause, shows no library.
            if not await ask_if_possible(partial(self._files.folders.is_used, name_files(binding))):
                found[str(binding.number)] = describe_binding(binding)
        self._conditions.replace("part-library-absent", found)

    async def _prune(self, look: FractionPoll) -> None:
        """Remove the files of ended containers, once no adoption is possible."""
        if look.listing is None or look.checkpoint is None:
            return
        names = await ask_if_possible(self._files.folders.list_names) or ()
        table = self._ledger.parts()
        if table is None:
            return
        known = list_file_names(table)
        for name in (name for name in names if name not in known):
            try:
                await self._files.specs().remove_fraction(name)
                await self._files.folders.remove(name)
            except NodeagentError as error:
                self._log.warning("part_files_left", name=name, error=str(error))
        if self._files.device_specs is not None:
            await self._prune_devices(self._files.device_specs, known)

    async def _prune_devices(self, find_specs: Callable[[], DeviceFractionSpecs], known: Collection[str]) -> None:
        try:
            specs = find_specs()
            for name in await specs.list_fractions():
                if name not in known:
                    await specs.remove_fraction(name)
        except NodeagentError as error:
            self._log.warning("part_files_left", error=str(error))

    async def _adopt_all(self, look: FractionPoll) -> None:
        """Adopt ids held in the kubelet's records but missing in the journal."""
        for view in self._views():
            await self._adopt_from(look, view)

    async def _adopt_from(self, look: FractionPoll, view: FractionView) -> None:
        limits = dict[str, tuple[FractionLimit, ...]]()
        for name in list_unknown_names(self._journal.table, look, view):
            if told := await ask_if_possible(partial(self._files.folders.read, name)):
                limits[name] = told
        for adoption in plan_adoptions(self._journal.table, look, view, limits):
            try:
                await self._adopt(adoption, view)
            except AllocationError as error:
                self._log.warning("part_not_adopted", pod=adoption.pod.name, error=str(error))

    async def _adopt(self, adoption: Adoption, view: FractionView) -> None:
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
            enforcement=await self._guess_enforcement(promised[0].cdi_name, adoption.parts, view),
            since_seconds=self._clock.wall(),
            cdi_name=promised[0].cdi_name,
            why=f"found after the journal was lost, by {adoption.source}",
            confirmed_by=("kubelet", adoption.source),
        )
        await self._ledger.bind(binding, None)

    async def _guess_enforcement(self, cdi_name: str, parts: Sequence[GpuFraction], view: FractionView) -> Enforcement:
        """The enforcement of an adopted binding: a wrong guess ends a daemon in use, or lifts limits at a restart."""
        if view.device_class:
            return Enforcement.COUNTED
        if any(fraction.cores >= CORES for fraction in parts):
            return Enforcement.ADVISE
        if await ask_if_possible(partial(self._files.folders.is_used, read_name(cdi_name))):
            return Enforcement.LIBRARY
        usual = Enforcement(view.enforcement)
        return Enforcement.ADVISE if usual is Enforcement.MPS and len(parts) > 1 else usual

    async def change(
        self, living: Binding, changed: Binding, capacities: Sequence[GpuFraction], limits: Sequence[FractionLimit]
    ) -> None:
        """Give a running container other limits; where its file cannot be written the old limits stay.

        Raises:
            NodeagentError: The old limits stay.
        """
        await self._ledger.bind(changed, capacities)
        try:
            await self._files.folders.write(name_files(changed), limits)
        except NodeagentError:
            # The container goes on with its old limits, which must not be given to any other container.
            await self._ledger.bind(living, None)
            raise

    async def remove_files(self, binding: Binding) -> None:
        """Remove the files of an ended container; files left by a failure are pruned later."""
        try:
            await self._files.find_specs(binding).remove_fraction(name_files(binding))
            if binding.enforcement is not Enforcement.COUNTED:
                await self._files.folders.remove(name_files(binding))
        except NodeagentError as error:
            self._log.warning("part_files_left", binding=binding.number, error=str(error))
