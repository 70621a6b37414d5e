"""Gives GPUs in parts: promises ids when the kubelet asks, binds them to a container and to GPUs when it starts.

Owns the lists of ids that the kubelet counts, the choice of GPUs, and the files by which limits reach a container.
Refuses to guess: whose the ids are is read from the kubelet's own records at the start of the container, and where they
do not tell yet the kubelet is told to ask again.
"""

import secrets
from collections.abc import Awaitable, Callable, Sequence
from typing import Final, TypeVar

import anyio
from anyio.abc import TaskStatus

from nodeagent.components.fractions.bind import (
    Choice,
    Start,
    change_parts,
    check_memory,
    check_request,
    choose,
    describe_pod,
    find_bindings,
    list_names,
)
from nodeagent.components.fractions.decide import (
    PartView,
    describe_parts,
    list_resources,
    name_files,
    plan_limits,
    plan_lists,
    plan_view,
    publish_view,
)
from nodeagent.components.fractions.plugin.component import TokenPlugin
from nodeagent.components.fractions.relay import PartsRelay
from nodeagent.components.fractions.requests.component import PodRequests, Requests
from nodeagent.components.fractions.tending.component import Files, KubeletRecords, Sources, Tending
from nodeagent.config.live import LiveSettings
from nodeagent.core.channels.bus import Bus
from nodeagent.core.channels.mailbox import Waker
from nodeagent.core.channels.news import News
from nodeagent.core.clock import Clock
from nodeagent.core.conditions import Conditions
from nodeagent.core.log.lines import get_logger
from nodeagent.model.driver import DriverState
from nodeagent.model.errors import (
    AllocationError,
    CallerUnclear,
    ControlRefused,
    DeviceUnhealthy,
    JournalUnavailable,
    NodeagentError,
    NoRoom,
    PartsUnavailable,
)
from nodeagent.model.events import ConfigurationReloaded, PartBound, PartRefused
from nodeagent.model.gpu import Inventory
from nodeagent.model.health import HealthReport
from nodeagent.model.ids import DeviceId, ResourceName
from nodeagent.model.journal import Binding, Enforcement, PartTable
from nodeagent.model.offering import Offering
from nodeagent.model.parts import PLACE, PartLimit, PartOffers, PartReasons, PartWish
from nodeagent.model.plugin import ContainerAnswer, ContainerMount
from nodeagent.model.ports import KubeletCheckpoint, PartFolders, PartLedger, PartLibrary, PartSpecs, PodListing
from nodeagent.rules.cdi_names import PART_KIND, qualify
from nodeagent.rules.fractions.pairing import Caller, Records, find_caller
from nodeagent.rules.fractions.profiles import CoresProfile
from nodeagent.rules.placement.place import render_placement

T = TypeVar("T")

PRELOAD: Final = "/etc/ld.so.preload"
"""Where a container's dynamic linker is told what to load before all else."""
START_SECONDS: Final = 5.0
"""How long a start may take; the kubelet waits 30 s for it."""


class Fractions:
    """The component; the kubelet's questions come through the relay."""

    name = "fractions"

    def __init__(
        self,
        bus: Bus,
        conditions: Conditions,
        clock: Clock,
        live: LiveSettings,
        relay: PartsRelay,
        *,
        ledger: PartLedger,
        kubelet: KubeletRecords,
        specs: PartSpecs,
        folders: PartFolders,
        library: PartLibrary,
        sources: Sources,
        open_pods: Callable[[], Awaitable[PodRequests]] | None = None,
    ) -> None:
        """Wire it up.

        Args:
            bus: where the GPUs' states come from and what is given is told.
            conditions: where this part's conditions are set.
            clock: the time.
            live: the settings in force.
            relay: by which the kubelet's questions come.
            ledger: the journal's part for what is given here.
            kubelet: who holds what by the kubelet's own records.
            specs: writes what a name means to container runtimes.
            folders: what containers are told of their limits.
            library: what holds containers to their parts.
            sources: who else knows what containers there are.
            open_pods: what the API server says of pods; none where it cannot be asked.
        """
        self._bus, self._conditions, self._clock, self._live, self._relay = bus, conditions, clock, live, relay
        self._ledger, self._kubelet, self._specs, self._folders = ledger, kubelet, specs, folders
        self._library = library
        self._requests = Requests(open_pods)
        self._view: PartView | None = None
        self._origin: tuple[object, ...] = ()
        self._published: tuple[PartView, str] | None = None
        self._turn = anyio.Lock(fast_acquire=True)
        self._tending = Tending(
            bus,
            conditions,
            clock,
            ledger,
            Files(specs, folders),
            kubelet,
            sources,
            turn=self._turn,
            note=self._forget_waiting,
            view=self._find_view,
        )
        self._waker, self._news = Waker(), News()
        self._waiting: dict[str, tuple[str, tuple[str, ...]]] = {}
        self._bound_why: dict[int, tuple[str, ...]] = {}
        self._log = get_logger(component=self.name)

    async def run(self, *, task_status: TaskStatus[None]) -> None:
        """Offer what there is, until cancelled; ready when it is known what that is."""
        # Who waited is not known any more: the kubelet asks again, and then it is said again.
        self._conditions.replace("part-no-room", {})
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(self._watch_states, name="fractions states")
            tasks.start_soon(self._watch_settings, name="fractions settings")
            while not self._refresh():
                await self._waker.wait()
            with self._relay.lead_to(self):
                task_status.started()
                tasks.start_soon(self._requests.run, name="fractions pods")
                tasks.start_soon(self._tending.run, name="fractions tended")
                while True:
                    await self._waker.wait()
                    self._refresh()

    async def _watch_states(self) -> None:
        with self._bus.watch_all(Inventory, HealthReport, Offering, PartTable, DriverState, client=self.name) as states:
            async for _ in states:
                self._waker.wake()

    async def _watch_settings(self) -> None:
        with self._bus.listen(ConfigurationReloaded, client=self.name) as reloads:
            async for _ in reloads:
                self._waker.wake()

    def _refresh(self) -> bool:
        """Offer what there is now; False while that is not known."""
        inventory, offering = self._bus.latest(Inventory), self._bus.latest(Offering)
        table, health = self._ledger.parts(), self._bus.latest(HealthReport)
        if inventory is None or offering is None or table is None:
            return False
        driver = self._bus.latest(DriverState)
        verdicts, obstacle = health.value if health else None, driver.value.obstacle if driver else ""
        view = self._view = self._look_at(inventory.value, offering.value, verdicts, obstacle)
        lists = plan_lists(view, table)
        for resource, devices in lists.items():
            plugin = self._relay.plugins.get(resource)
            if not isinstance(plugin, TokenPlugin):
                plugin = self._relay.plugins[resource] = TokenPlugin(resource, self._relay, self._live)
            plugin.update(devices)
        for resource in self._relay.plugins.keys() - lists.keys():
            del self._relay.plugins[resource]
        cause = self._news.take(inventory, health, offering, driver)
        published = self._render_published(view) if self._live.now.fractions.publish else ""
        offers = PartOffers(resources=tuple(sorted(lists)), unfit=view.unfit, published=published)
        self._bus.publish_state(offers, source=self.name, cause=cause)
        return True

    def _look_at(
        self, inventory: Inventory, offering: Offering, health: HealthReport | None, obstacle: str
    ) -> PartView:
        """The view of now; the one before where nothing that it is made of has changed, as when a pod comes."""
        origin = (inventory, offering, health, obstacle, self._live.now.fractions)
        if self._view is None or origin != self._origin:
            self._origin = origin
            return plan_view(inventory, offering, health, self._live.now.fractions, obstacle)
        return self._view

    def _render_published(self, view: PartView) -> str:
        """What the node says to schedulers; made anew only when one of the GPUs has changed."""
        if self._published is None or self._published[0] is not view:
            self._published = (view, publish_view(view))
        return self._published[1]

    async def allocate(self, resource: ResourceName, devices: Sequence[DeviceId]) -> ContainerAnswer:
        """Promise ids; the container is told a name that means nothing before it starts."""
        view = self._find_view()
        try:
            check_request(view.profile, resource, len(devices))
            is_first = resource == list_resources(view.profile)[0]
            cdi_name = qualify(PART_KIND, f"p{secrets.token_hex(8)}") if is_first else ""
            await self._ledger.reserve(resource, devices, cdi_name)
        except AllocationError as error:
            self._tell_refused(resource, len(devices), error)
            raise
        return ContainerAnswer(cdi_devices=(cdi_name,) if cdi_name else ())

    async def pre_start(self, resource: ResourceName, devices: Sequence[DeviceId]) -> None:
        """Give the container that starts with these ids its parts, unless it has them already."""
        view = self._find_view()
        try:
            with anyio.fail_after(START_SECONDS):
                if resource == list_resources(view.profile)[0]:
                    await self._start(view, devices)
                elif not self._find_table().is_redeemed(resource, devices):
                    await self._check_memory(view, devices)
        except AllocationError as error:
            self._tell_refused(resource, len(devices), error)
            raise
        except TimeoutError:
            late = PartsUnavailable(
                f"the kubelet, the disk or the API server did not answer within {START_SECONDS:g} s"
            )
            self._tell_refused(resource, len(devices), late)
            raise late from None
        except NodeagentError as error:
            failed = PartsUnavailable(str(error))
            self._tell_refused(resource, len(devices), failed)
            raise failed from error

    async def _check_memory(self, view: PartView, devices: Sequence[DeviceId]) -> None:
        """Tell a container that asks for memory alone; where the kubelet cannot be asked, its cores are, if any."""
        try:
            listing = await self._kubelet.read_pods()
        except NodeagentError as error:
            self._log.debug("memory_not_checked", error=str(error))
            return
        check_memory(view.profile, listing, devices)

    async def set_part(self, wish: PartWish) -> str:
        """Give a running container other limits; the port's contract is in `model.ports`."""
        async with self._turn:
            found = find_bindings(self._find_table(), wish.pod, wish.container)
            if len(found) != 1:
                several = ", ".join(map(describe_pod, found))
                raise ControlRefused(f"{wish.pod} means {several}: name one" if found else f"no part of {wish.pod}")
            changed = change_parts(found[0], wish.cores, wish.memory_bytes)
            view = self._find_view()
            try:
                binding = await self._ledger.bind(changed, view.capacities)
                await self._folders.write(name_files(binding), self._plan_limits(binding, view))
            except NodeagentError as error:
                raise ControlRefused(str(error)) from error
        self._tell_bound(binding, f"set by {wish.who}")
        return f"{describe_pod(binding)} has {describe_parts(binding)}"

    async def _start(self, view: PartView, devices: Sequence[DeviceId]) -> None:
        caller = await self._identify(view, devices)
        start = Start(caller, await self._requests.find(caller.pod), self._live.now.fractions)
        who = f"{caller.pod.namespace}/{caller.pod.name} ({caller.containers[0]})"
        async with self._turn:
            # What has changed since, such as a GPU that was lost, counts.
            view, table = self._find_view(), self._find_table()
            try:
                choice = choose(start, view, table, self._clock.wall())
            except NoRoom as error:
                self._tell_waiting(who, error.reason, error.looked_at)
                raise
            binding = await self._bind(choice, view, table)
        self._tell_waiting(who, "")
        _refuse_broken(binding, view)
        await self._write_files(binding, view, list_names(table, binding))
        for number in choice.leaving:
            await self._tending.remove_files(table.bindings[number])

    async def _identify(self, view: PartView, devices: Sequence[DeviceId]) -> Caller:
        """Whose these ids are, by the kubelet's list and its notes; either may be missing, not both."""
        listing = PodListing()
        checkpoint = KubeletCheckpoint()
        problems: list[str] = []

        async def read_list() -> None:
            nonlocal listing
            try:
                listing = await self._kubelet.read_pods()
            except NodeagentError as error:
                problems.append(str(error))

        async def read_notes() -> None:
            nonlocal checkpoint
            try:
                checkpoint = await self._kubelet.read_checkpoint()
            except NodeagentError as error:
                problems.append(str(error))

        async with anyio.create_task_group() as tasks:
            tasks.start_soon(read_list)
            tasks.start_soon(read_notes)
        first, *rest = list_resources(view.profile)
        if len(problems) > 1:
            raise CallerUnclear(first, "; ".join(problems))
        records = Records(listed=listing.containers, noted=checkpoint.containers)
        return find_caller(records, first, rest[0] if isinstance(view.profile, CoresProfile) else None, devices)

    def _forget_waiting(self, listing: PodListing) -> None:
        """Say no more of a container that it waits when its pod has gone."""
        active = {f"{pod.namespace}/{pod.name}" for pod in listing.pods}
        for who in [who for who in self._waiting if who.partition(" ")[0] not in active]:
            self._tell_waiting(who, "")

    async def _bind(self, choice: Choice, view: PartView, table: PartTable) -> Binding:
        """Write down what was chosen, or what is known of its pod now; what it has already stays as it is."""
        if choice.binding == table.bindings.get(choice.binding.number):
            return choice.binding
        binding = await self._ledger.bind(choice.binding, view.capacities, choice.leaving)
        if choice.placement is None:
            return binding
        if choice.problem:
            self._log.warning("scheduler_choice_not_read", pod=binding.pod.name, problem=choice.problem)
        self._bound_why[binding.number] = render_placement(choice.placement)
        self._tell_bound(binding, choice.placement.rule)
        return binding

    def _tell_bound(self, binding: Binding, reason: str) -> None:
        gpus = tuple(part.gpu for part in binding.parts)
        fact = PartBound(number=binding.number, pod=binding.pod, container=binding.container, gpus=gpus, reason=reason)
        self._bus.publish_fact(fact, source=self.name)
        self._log.info("part_bound", pod=binding.pod.name, container=binding.container, gpus=list(gpus))
        self._tell_reasons()

    def _tell_reasons(self) -> None:
        """How GPUs were chosen for those that have them now, and why others wait."""
        living = self._find_table().bindings
        self._bound_why = {number: lines for number, lines in self._bound_why.items() if number in living}
        waiting = {who: lines for who, (_, lines) in self._waiting.items()}
        self._bus.publish_state(PartReasons(bound=dict(self._bound_why), waiting=waiting), source=self.name)

    async def _write_files(self, binding: Binding, view: PartView, names: tuple[str, ...]) -> None:
        folder = await self._folders.write(names[0], self._plan_limits(binding, view))
        mounts = [
            ContainerMount(container_path=f"{PLACE}/limits", host_path=folder.limits),
            ContainerMount(container_path=f"{PLACE}/usage", host_path=folder.usage, read_only=False),
        ]
        if binding.enforcement is Enforcement.LIBRARY:
            files = await self._library.install()
            mounts += [
                ContainerMount(container_path=f"{PLACE}/{files.library.rpartition('/')[2]}", host_path=files.library),
                ContainerMount(container_path=PRELOAD, host_path=files.preload),
            ]
        await self._specs.write_part(names, [part.gpu for part in binding.parts], mounts)

    def _plan_limits(self, binding: Binding, view: PartView) -> tuple[PartLimit, ...]:
        return plan_limits(binding, view.capacities, compute=self._live.now.fractions.limit_compute)

    def _find_view(self) -> PartView:
        if self._view is None:
            raise PartsUnavailable("the GPUs are not known yet")
        return self._view

    def _find_table(self) -> PartTable:
        table = self._ledger.parts()
        if table is None:
            raise JournalUnavailable("of allocations", "it has not been read yet")
        return table

    def _tell_refused(self, resource: ResourceName, count: int, error: AllocationError) -> None:
        refused = PartRefused(resource=resource, count=count, reason=str(error))
        self._bus.publish_fact(refused, source=self.name)

    def _tell_waiting(self, who: str, reason: str, looked_at: tuple[str, ...] = ()) -> None:
        """Say of a container that it waits for room, or that it does so no more."""
        if self._waiting.get(who, ("",))[0] == reason:
            return
        if reason:
            self._waiting[who] = (reason, looked_at)
        else:
            del self._waiting[who]
        self._conditions.replace("part-no-room", {key: f"{key}: {text}" for key, (text, _) in self._waiting.items()})
        self._tell_reasons()


def _refuse_broken(binding: Binding, view: PartView) -> None:
    """See that a container does not start on a GPU that does not work."""
    for part in binding.parts:
        gpu = view.inventory.find_gpu(part.gpu)
        if gpu is None or gpu.lost:
            raise DeviceUnhealthy(part.gpu, gpu.lost if gpu is not None else "it is not on this node any more")
