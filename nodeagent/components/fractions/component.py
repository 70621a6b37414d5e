"""Gives GPUs in fractions: reserves ids at Allocate, binds ids to a container and to GPUs at PreStart.

Owns the lists of ids that the kubelet counts, the choice of GPUs, and the files by which limits reach a container.
Refuses to guess: the holder of ids is read from the kubelet's own records at the start of the container; where the
records do not name the holder yet, the kubelet is told to ask again.
"""

import secrets
from collections.abc import Awaitable, Callable, Sequence
from typing import Final, NamedTuple

import anyio
from anyio.abc import TaskStatus

from nodeagent.components.fractions.bind import (
    NOT_ENFORCED,
    Choice,
    Start,
    change_fractions,
    check_request,
    choose,
    find_bindings,
    list_names,
)
from nodeagent.components.fractions.choice_check_task import ChoiceCheck
from nodeagent.components.fractions.class_views import plan_told
from nodeagent.components.fractions.decide import (
    FractionView,
    describe_fractions,
    list_resources,
    plan_limits,
    plan_lists,
)
from nodeagent.components.fractions.decision_log_task import DecisionLog
from nodeagent.components.fractions.foreign_task import ForeignUse
from nodeagent.components.fractions.limits_sync_task import LimitsSync
from nodeagent.components.fractions.mps_daemon_task import wait_access
from nodeagent.components.fractions.plugin_task import FractionPlugin, FractionPlugins, report_registered
from nodeagent.components.fractions.pod_resolver_task import NodePods, PodResolver
from nodeagent.components.fractions.poll_task import SourcePoller, Sources
from nodeagent.components.fractions.reconcile_task import Files, FractionReconciler, LockedJournal
from nodeagent.components.fractions.utilization_task import UtilizationFiles
from nodeagent.components.fractions.views_task import Views
from nodeagent.config.live import LiveSettings
from nodeagent.core.channels.bus import Bus
from nodeagent.core.channels.mailbox import Waker
from nodeagent.core.channels.news import News
from nodeagent.core.clock import Clock
from nodeagent.core.conditions import Conditions
from nodeagent.core.life.orders import OrderHandlers
from nodeagent.core.log.lines import get_logger
from nodeagent.model.allocation import AllocationTable
from nodeagent.model.devices import DeviceTable
from nodeagent.model.driver import DriverState
from nodeagent.model.errors import (
    AllocationError,
    ControlRefused,
    DeviceUnhealthy,
    FractionsUnavailable,
    JournalUnavailable,
    NodeagentError,
    NoRoom,
)
from nodeagent.model.events import ConfigurationReloaded, FractionBound, FractionRefused
from nodeagent.model.fractions import FractionLimit
from nodeagent.model.gpu import Inventory
from nodeagent.model.health import HealthReport
from nodeagent.model.ids import DeviceId, ResourceName
from nodeagent.model.journal import Binding, Enforcement, FractionTable
from nodeagent.model.mps import MpsState
from nodeagent.model.offering import Offering
from nodeagent.model.orders import SET_PART, LimitsCommand
from nodeagent.model.plugin import ContainerAnswer
from nodeagent.model.ports import FractionJournal
from nodeagent.model.runtime import RuntimeState
from nodeagent.rules.cdi_names import FRACTION_KIND, qualify
from nodeagent.rules.container_receipts import name_fraction_receipt
from nodeagent.rules.fractions.runtime import (
    explain_no_cdi,
    explain_no_device_names,
    plan_fraction_mounts,
    render_answer,
)
from nodeagent.rules.placement.place import render_placement

START_SECONDS: Final = 10.0
"""Limit for a container's start; the kubelet waits 30 s."""
GATHER_SECONDS: Final = 0.05
"""How long changes are gathered: a starting container makes several, and waits for no follow-up."""
MIB: Final = 1 << 20
NAME_PAUSES_SECONDS: Final = (1.0, 1.0, 2.0, 4.0)
"""Pauses between polls for the names of pods bound without a name; later the regular polls find the names."""
WATCHED: Final = (
    *(Inventory, HealthReport, Offering, FractionTable, DriverState, MpsState, RuntimeState),
    *(DeviceTable, AllocationTable),
)


class FractionHandles(NamedTuple):
    """By which others reach the component: the kubelet by the plugins, people by orders."""

    plugins: FractionPlugins
    orders: OrderHandlers
    wait_for_gpus: Callable[[], Awaitable[None]] | None = None
    """Waits for the driver's GPUs, where devices of classes are given without them."""


class Fractions:
    """The component; the kubelet's calls arrive through the handle."""

    name = "fractions"

    def __init__(
        self,
        bus: Bus,
        conditions: Conditions,
        clock: Clock,
        live: LiveSettings,
        handles: FractionHandles,
        ledger: FractionJournal,
        files: Files,
        sources: Sources,
    ) -> None:
        self._bus, self._clock, self._live = bus, clock, live
        self._plugins, self._orders = handles.plugins, handles.orders
        self._ledger, self._files = ledger, files
        self._pods = NodePods(sources.open_pods)
        self._resolver = PodResolver(sources.kubelet, self._pods)
        self._decisions = DecisionLog(bus, conditions)
        self._views = Views(bus, live, self._decisions, wait_for_gpus=handles.wait_for_gpus)
        self._choice_check = ChoiceCheck(bus, live, self._pods, self._views.now.find_owner)
        self._journal = LockedJournal(ledger, anyio.Lock(fast_acquire=True))
        self._waker, self._news, self._nameless = Waker(), News(), Waker()
        journal, poller = self._journal, SourcePoller(bus, clock, sources, self._pods.list_finished)
        self._reconciler = FractionReconciler(
            bus,
            conditions,
            clock,
            journal,
            files,
            poller,
            note=self._decisions.forget_waiting,
            views=lambda: self._views.now.all,
        )
        self._foreign = ForeignUse(conditions, live, journal, poller, lambda: self._views.now.gpus, self._waker.wake)
        self._utilization = UtilizationFiles(bus, live, journal, files.folders)
        self._limits_sync = LimitsSync(journal, files.folders, self._plan_limits)
        self._untold: dict[int, str] = {}
        self._log = get_logger(component=self.name)

    async def run(self, *, task_status: TaskStatus[None]) -> None:
        """Offer the node's fractions until cancelled; ready when the kubelet has registered the resources."""
        self._decisions.begin()
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(
                self._waker.follow, self._bus.watch_all(*WATCHED, client=self.name), name="fractions states"
            )
            tasks.start_soon(
                self._waker.follow, self._bus.listen(ConfigurationReloaded, client=self.name), name="fractions settings"
            )
            tasks.start_soon(self._views.wait_for_gpus, self._waker.wake, name="fractions GPUs")
            while not self._refresh():
                await self._waker.wait()
            with self._plugins.component.filled(self), self._orders.carrying_out(SET_PART, self.set_limits):
                tasks.start_soon(
                    report_registered, self._bus, self._plugins.plugins.keys, task_status.started, name="fractions told"
                )
                tasks.start_soon(self._pods.run, name="fractions pods")
                tasks.start_soon(self._choice_check.run, name="fractions choices")
                tasks.start_soon(self._reconciler.run, name="fractions tended")
                tasks.start_soon(self._foreign.run, name="fractions foreign")
                tasks.start_soon(self._reconciler.prepare_promised, name="fractions promised")
                tasks.start_soon(self._end_finished, name="fractions finished")
                tasks.start_soon(self._utilization.run, name="fractions measured")
                tasks.start_soon(self._limits_sync.run, name="fractions renewed")
                tasks.start_soon(self._publish_named, name="fractions named")
                while True:
                    await self._waker.wait()
                    await anyio.sleep(GATHER_SECONDS)
                    self._refresh()

    def _refresh(self) -> bool:
        """Offer the node's fractions; False while devices, offering or journal are unknown."""
        table = self._ledger.parts()
        if table is None or not self._views.refresh(self._foreign.by_gpu):
            return False
        lists = {name: each for view in self._views.now.all for name, each in plan_lists(view, table).items()}
        for resource, devices in lists.items():
            if resource not in self._plugins.plugins:
                self._plugins.plugins[resource] = FractionPlugin(resource, self._plugins.component, self._live)
            self._plugins.plugins[resource].update(devices)
        for resource in self._plugins.plugins.keys() - lists.keys():
            del self._plugins.plugins[resource]
        sources = (Inventory, HealthReport, Offering, DriverState, DeviceTable)
        cause = self._news.take(*(self._bus.latest(source) for source in sources))
        self._bus.publish_state(self._views.plan_offers(lists, table), source=self.name, cause=cause)
        return True

    async def allocate(self, resource: ResourceName, devices: Sequence[DeviceId]) -> ContainerAnswer:
        """Reserve ids; the container gets a CDI name without meaning until the container starts."""
        view = self._views.now.find(resource)
        try:
            check_request(view.profile, resource, len(devices))
            is_first = resource == list_resources(view.profile)[0]
            is_named = is_first and not view.device_class
            cdi_name = qualify(FRACTION_KIND, f"p{secrets.token_hex(8)}") if is_first else ""
            await self._ledger.reserve(resource, devices, cdi_name)
        except AllocationError as error:
            self._report_refused(resource, len(devices), error)
            raise
        if is_named:
            self._reconciler.note_promised(cdi_name)
        return render_answer(cdi_name, self._bus.read(RuntimeState))

    async def pre_start(self, resource: ResourceName, devices: Sequence[DeviceId]) -> None:
        """Give the starting container with these ids its fractions, unless the ids are bound already."""
        view = self._views.now.find(resource)
        try:
            with anyio.fail_after(START_SECONDS):
                if resource == list_resources(view.profile)[0]:
                    await self._start(resource, devices)
                elif not self._find_table().is_redeemed(resource, devices):
                    await self._resolver.check_memory(view, resource, devices)
        except AllocationError as error:
            self._report_refused(resource, len(devices), error)
            raise
        except TimeoutError:
            late = FractionsUnavailable(
                f"the kubelet, the disk or the API server did not answer within {START_SECONDS:g} s"
            )
            self._report_refused(resource, len(devices), late)
            raise late from None
        except NodeagentError as error:
            failed = FractionsUnavailable(str(error))
            self._report_refused(resource, len(devices), failed)
            raise failed from error

    async def set_limits(self, command: LimitsCommand) -> str:
        """Give a running container other limits; the answer has the limits in force.

        Raises:
            ControlRefused: No such container, or too little left of the GPU.
        """
        async with self._journal.turn:
            found = find_bindings(self._find_table(), command.pod, command.container)
            if len(found) != 1:
                several = ", ".join(map(Binding.describe, found))
                unknown = f"{command.pod} has no part of a GPU here: `nodeagent fractions list` says who has one"
                raise ControlRefused(f"{command.pod} means {several}: name one" if found else unknown)
            changed = change_fractions(found[0], command.cores, command.memory_bytes)
            view = self._views.now.find_owner(changed)
            capacities = view.capacities if view is not None else ()
            try:
                await self._reconciler.change(found[0], changed, capacities, self._plan_limits(changed))
            except NodeagentError as error:
                raise ControlRefused(str(error)) from error
        self._publish_bound(changed, f"set by {command.who}")
        later = " from its next start on, as MPS takes it then" if changed.enforcement is Enforcement.MPS else ""
        return f"{changed.describe()} has {describe_fractions(changed)}{later}"

    async def _start(self, resource: ResourceName, devices: Sequence[DeviceId]) -> None:
        view, runtime = self._views.now.find(resource), self._bus.read(RuntimeState)
        if lack := explain_no_device_names(runtime) if view.device_class else explain_no_cdi(runtime):
            raise FractionsUnavailable(lack)
        # The names say which containers wait for room, and which wait no more.
        table = self._find_table()
        caller, pod = await self._resolver.identify(view, table, devices, by_name=self._decisions.anybody_waits)
        start = Start(caller, pod, self._live.now.fractions, self._bus.read(MpsState))
        try:
            # A pod that finished a moment ago is in no pod's way: schedulers count on its room.
            await self._reconciler.end_finished(looks=1)
            async with self._journal.turn:
                # Changes since then count, such as a lost GPU.
                view, table = self._views.now.find(resource), self._find_table()
                choice = choose(start, view, table, self._clock.wall())
                binding = await self._bind(choice, view, table)
        except NoRoom as error:
            if not caller.pod.name:
                caller, _ = await self._resolver.identify(view, table, devices, by_name=True)
            self._decisions.report_waiting(caller.describe(), error.reason, error.looked_at)
            raise
        self._decisions.report_waiting(caller.describe(), "")
        _refuse_broken(binding, view)
        await self._write_files(binding, list_names(table, binding))
        for number in choice.leaving:
            await self._reconciler.remove_files(table.bindings[number])

    async def _end_finished(self) -> None:
        known = frozenset[str]()
        while True:
            known = await self._pods.wait_finished(known)
            await self._reconciler.end_finished()

    async def _publish_named(self) -> None:
        """Publish bindings made before their pods had names, as soon as the names are known."""
        while True:
            await self._nameless.wait()
            for pause in NAME_PAUSES_SECONDS:
                has_all = await self._reconciler.name_all()
                self._publish_unpublished()
                await anyio.sleep(pause)
                if has_all:
                    break

    def _publish_unpublished(self) -> None:
        untold, self._untold = self._untold, {}
        living = self._journal.table.bindings
        for number, reason in untold.items():
            if number in living:
                self._publish_bound(living[number], reason)

    async def _bind(self, choice: Choice, view: FractionView, table: FractionTable) -> Binding:
        """Record the chosen binding, or the pod's newly known identity; an unchanged binding is not written."""
        if not choice.binding.pod.name:
            self._nameless.wake()
        if choice.binding == table.bindings.get(choice.binding.number):
            return choice.binding
        binding = await self._ledger.bind(choice.binding, view.capacities, choice.leaving)
        if choice.placement is None:
            return binding
        if choice.problem:
            self._log.warning("scheduler_choice_not_read", pod=binding.pod.name, problem=choice.problem)
        note = (f"note       {NOT_ENFORCED}",) if binding.enforcement is Enforcement.COUNTED else ()
        self._decisions.note_bound(binding.number, (*render_placement(choice.placement), *note), choice.overruled)
        if binding.pod.name:
            self._publish_bound(binding, choice.placement.rule)
        else:
            self._untold[binding.number] = choice.placement.rule
        return binding

    def _publish_bound(self, binding: Binding, reason: str) -> None:
        gpus = tuple(fraction.gpu for fraction in binding.parts)
        fact = FractionBound(
            number=binding.number, pod=binding.pod, container=binding.container, gpus=gpus, reason=reason
        )
        self._bus.publish_fact(fact, source=self.name)
        self._log.info("part_bound", pod=binding.pod.name, container=binding.container, gpus=list(gpus))
        self._decisions.publish_bound(self._find_table().bindings)

    async def _write_files(self, binding: Binding, names: tuple[str, ...]) -> None:
        gpus = [fraction.gpu for fraction in binding.parts]
        if binding.enforcement is Enforcement.COUNTED:
            await self._files.find_specs(binding).write_fraction(names, gpus, (), plan_told(binding))
            return
        folder = await self._files.folders.write(names[0], self._plan_limits(binding))
        library = await self._files.library.install() if binding.enforcement is Enforcement.LIBRARY else None
        mounts, environment = plan_fraction_mounts(folder, library), dict[str, str]()
        if binding.enforcement is Enforcement.MPS:
            access = await wait_access(self._bus, self._live.now, binding)
            mounts, environment = (*access.mounts, *mounts), dict(access.environment)
        if self._files.receipts is not None:
            receipt = await self._files.receipts.open_receipt(name_fraction_receipt(binding), gpus, mounts)
            mounts = (*receipt, *mounts)
        await self._files.find_specs(binding).write_fraction(names, gpus, mounts, environment)

    def _plan_limits(self, binding: Binding) -> tuple[FractionLimit, ...]:
        """The limits of a container; none where its fractions are counted alone."""
        view, settings = self._views.now.find_owner(binding), self._live.now.fractions
        if view is None or binding.enforcement is Enforcement.COUNTED:
            return ()
        context_bytes = settings.context_mib * MIB
        return plan_limits(binding, view.capacities, compute=settings.limit_compute, context_bytes=context_bytes)

    def _find_table(self) -> FractionTable:
        table = self._ledger.parts()
        if table is None:
            raise JournalUnavailable("of allocations", "it has not been read yet")
        return table

    def _report_refused(self, resource: ResourceName, count: int, error: AllocationError) -> None:
        is_of_node = isinstance(error, JournalUnavailable)
        refused = FractionRefused(resource=resource, count=count, reason=str(error), is_of_node=is_of_node)
        self._bus.publish_fact(refused, source=self.name)


def _refuse_broken(binding: Binding, view: FractionView) -> None:
    """Refuse to start a container on a lost or missing GPU."""
    for fraction in binding.parts:
        gpu = view.inventory.find_gpu(fraction.gpu)
        if gpu is None or gpu.lost:
            raise DeviceUnhealthy(fraction.gpu, gpu.lost if gpu is not None else "it is not on this node any more")
