"""Offers the node's GPUs to the kubelet and hands them to containers.

Owns a server for each resource with its list, its preferences and its answers.
Refuses to answer before the journal holds the allocation, and to take a resource away from a kubelet with containers
on it: such a resource is served, with its gone devices unhealthy, until its holders are gone.
"""

from collections.abc import Awaitable, Callable, Iterable
from typing import NamedTuple, Protocol

import anyio
from anyio.abc import TaskGroup, TaskStatus
from msgspec.structs import replace

from nodeagent.components.deviceplugin.advertise import (
    View,
    find_named,
)
from nodeagent.components.deviceplugin.answer import OfferPlan, find_held, find_missing_channels, make_plan
from nodeagent.components.deviceplugin.offer_summary import (
    decide_conditions,
    find_claimed,
    find_parted,
    list_offered,
    plan_summary,
)
from nodeagent.components.deviceplugin.plugin_task import Narrow, ResourcePlugin, narrow_nothing
from nodeagent.config.live import LiveSettings
from nodeagent.config.schema import Settings
from nodeagent.core.channels.bus import Bus
from nodeagent.core.channels.envelope import Cause, Envelope
from nodeagent.core.channels.mailbox import Waker
from nodeagent.core.channels.news import News
from nodeagent.core.conditions import Conditions
from nodeagent.core.life.ticker import Ticker
from nodeagent.core.log.lines import get_logger
from nodeagent.model.allocation import AllocationTable
from nodeagent.model.devices import DeviceTable
from nodeagent.model.driver import DriverState
from nodeagent.model.errors import NodeagentError
from nodeagent.model.events import ConfigurationReloaded, DevicesAdvertised
from nodeagent.model.fractions import FractionOffers
from nodeagent.model.gpu import Inventory
from nodeagent.model.health import HealthReport
from nodeagent.model.ids import GpuUuid, ResourceName
from nodeagent.model.mig import MigState
from nodeagent.model.mps import MpsState
from nodeagent.model.offering import AllocationMode, Offering
from nodeagent.model.plugin import (
    AdvertisedResource,
    HandoutFacts,
    OfferSummary,
    PluginState,
)
from nodeagent.model.ports import AllocationJournal, DevicePlugin, PluginSource
from nodeagent.model.runtime import CdiState
from nodeagent.model.slices import PublishedSlices
from nodeagent.rules.cdi_names import EXTRA_KINDS, name_own_kind
from nodeagent.rules.offer.devices import Resource, ResourcePlan

FACTS_SECONDS = 5.0
"""Pause between polls of device nodes that appear and vanish without an event, such as IMEX channels."""
RETRY_SECONDS = 2.0
NO_FRACTIONS = FractionOffers()
NO_ACCOUNT = OfferSummary(gpus=0, devices_offered=0)
"""For a device plugin switched off: no device is to be offered, and no condition is set."""
WATCHED = (Inventory, HealthReport, Offering, AllocationTable, CdiState, DriverState, MigState, MpsState)


class ServeResource(Protocol):
    """Keeps a resource registered with the kubelet and its questions answered, until cancelled."""

    async def __call__(self, plugin: DevicePlugin, endpoint: str, report: Callable[[AdvertisedResource], None]) -> None:
        """Serve at the socket of this bare name; reports each change of the kubelet's knowledge.

        Raises:
            NodeagentError: The socket cannot be served.
        """
        ...


class OtherResources(NamedTuple):
    """The resources of other components, served like the component's own."""

    source: PluginSource
    narrow: Narrow = narrow_nothing
    """Chooses the available GPUs near to the other devices of the container."""
    wait_for_gpus: Callable[[], Awaitable[None]] | None = None
    """Returns when the component's own can be served too; `None` where all resources wait for GPUs."""


class _Served(NamedTuple):
    plugin: DevicePlugin
    scope: anyio.CancelScope
    own: ResourcePlugin | None = None
    """The plugin, where it is the component's own."""


class DevicePlugins:
    """The component."""

    name = "deviceplugin"

    def __init__(
        self,
        bus: Bus,
        conditions: Conditions,
        live: LiveSettings,
        journal: AllocationJournal,
        *,
        serve: ServeResource,
        read_facts: Callable[[Settings], Awaitable[HandoutFacts]],
        others: OtherResources,
    ) -> None:
        self._bus, self._conditions, self._live, self._journal = bus, conditions, live, journal
        self._serve, self._read_facts, self._others = serve, read_facts, others
        self._has_gpus = others.wait_for_gpus is None
        self._log = get_logger(component=self.name)
        self._served: dict[ResourceName, _Served] = {}
        self._ending: set[ResourceName] = set()
        self._standing: dict[ResourceName, AdvertisedResource] = {}
        self._facts = HandoutFacts()
        self._plan: OfferPlan | None = None
        self._account: OfferSummary | None = None
        self._accounted: tuple[object, ...] = ()
        self._waker = Waker()
        self._news = News()
        self._reloaded: Envelope[ConfigurationReloaded] | None = None

    async def run(self, *, task_status: TaskStatus[None]) -> None:
        """Serve the resources of the bus until cancelled; ready when the kubelet knows every resource."""
        await self._read_facts_once()
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(
                self._waker.follow, self._bus.watch_all(*WATCHED, client=self.name), name="deviceplugin states"
            )
            tasks.start_soon(
                self._waker.follow,
                self._bus.watch_all(FractionOffers, DeviceTable, PublishedSlices, client=self.name),
                name="deviceplugin others",
            )
            tasks.start_soon(self._watch_settings, name="deviceplugin settings")
            tasks.start_soon(self._watch_facts, name="deviceplugin facts")
            if self._others.wait_for_gpus is not None:
                tasks.start_soon(self._note_gpus, self._others.wait_for_gpus, name="deviceplugin GPUs")
            while not self._refresh(tasks):
                await self._waker.wait()
            task_status.started()
            while True:
                await self._waker.wait()
                self._refresh(tasks)

    async def _note_gpus(self, wait: Callable[[], Awaitable[None]]) -> None:
        await wait()
        self._has_gpus = True
        self._waker.wake()

    async def _watch_settings(self) -> None:
        with self._bus.listen(ConfigurationReloaded, client=self.name) as reloads:
            async for self._reloaded in reloads:
                await self._read_facts_once()
                self._waker.wake()

    async def _watch_facts(self) -> None:
        async for _ in Ticker(FACTS_SECONDS):
            if await self._read_facts_once():
                self._waker.wake()

    async def _read_facts_once(self) -> bool:
        """Read the node's facts again; returns whether they have changed. Unreadable facts stay unchanged."""
        try:
            facts = await self._read_facts(self._live.now)
        except NodeagentError as error:
            self._log.warning("handout_facts_not_read", error=str(error))
            return False
        changed = facts != self._facts
        self._facts = facts
        return changed

    def _refresh(self, tasks: TaskGroup) -> bool:
        """Serve the present resources; returns whether the kubelet knows all of them."""
        others = self._others.source.list_plugins()
        for name in others.keys() - self._served.keys() - self._ending:
            self._begin(tasks, others[name])
        inventory = self._bus.latest(Inventory)
        if inventory is None or not self._has_gpus:
            return False
        settings = self._live.now
        offering = self._bus.latest(Offering)
        standing = offering.value if offering is not None else None
        closed = standing.list_elsewhere(inventory.value.gpus, AllocationMode.WHOLE) if standing is not None else {}
        planned = self._replan(inventory.value, settings, frozenset(closed))
        facts = replace(self._facts, cdi_extras=self._find_extras())
        health = self._bus.latest(HealthReport)
        driver = self._bus.latest(DriverState)
        no_channel = find_missing_channels(settings.device_plugin, facts)
        blocked = no_channel or (driver.value.obstacle if driver is not None else "")
        cdi, table = self._bus.latest(CdiState), self._bus.latest(AllocationTable)
        mps = self._bus.latest(MpsState)
        cause = self._news.take(inventory, health, driver, offering, cdi, mps, self._reloaded) or self._news.take(table)
        named = find_named(self._bus.read(CdiState), settings, name_own_kind(facts.vendor))
        cordoned = standing.list_cordoned() if standing is not None else {}
        draining = standing.list_waiting() if standing is not None else frozenset()
        trials = frozenset(standing.list_trials() if standing is not None else ())
        judged, cutting, daemons = self._bus.read(HealthReport), self._bus.read(MigState), self._bus.read(MpsState)
        view = View(inventory.value, judged, blocked, named, closed, cordoned, trials, draining, cutting, daemons)
        is_on = settings.device_plugin.enabled
        held = find_held(table.value) if table is not None and is_on else {}
        held = {name: devices for name, devices in held.items() if name not in others}
        wanted = dict.fromkeys(resource.name for resource in planned.plan.resources if is_on)
        for name in {**wanted, **held}:
            offer = planned.offer(name, view, settings, facts)
            if name in self._ending:
                continue
            served = self._served.get(name)
            if served is None:
                served = self._begin(tasks, ResourcePlugin(offer, self._journal, self._others.narrow))
            if served.own is not None:
                served.own.update(offer, held.get(name, ()), cause)
        # A resource served only for its holders goes to the component that offers it again.
        returned = {name for name in others.keys() & self._served.keys() - wanted if self._served[name].own is not None}
        for name in (self._served.keys() - wanted.keys() - held.keys() - others.keys()) | returned:
            self._ending.add(name)
            self._served.pop(name).scope.cancel()
            self._standing.pop(name, None)
        self._report_problems(planned.plan, no_channel, others.keys() & {**wanted, **held}.keys())
        before, self._account = self._account, self._keep_summary(planned.plan, view, settings)
        envelope = self._publish(cause)
        if self._account is not before:
            for code, details in decide_conditions(self._account or NO_ACCOUNT).items():
                self._conditions.replace(code, details, cause=envelope)
        told = all(self._is_known(name) for name in wanted)
        return told and all(name in self._standing and self._standing[name].registered for name in others)

    def _is_known(self, name: ResourceName) -> bool:
        """Whether the kubelet has registered the resource and been sent its devices."""
        standing = self._standing.get(name)
        return standing is not None and standing.registered and bool(standing.devices)

    def _replan(self, inventory: Inventory, settings: Settings, closed: frozenset[GpuUuid]) -> OfferPlan:
        """The plan for the inventory and settings; made again only after a change."""
        kept = self._plan
        plan = self._plan = make_plan(kept, inventory, settings, closed)
        if plan is not kept:
            counts = {resource.name: len(resource.devices) for resource in plan.plan.resources}
            self._log.info("resources_planned", generation=inventory.generation, resources=counts)
        return plan

    def _find_extras(self) -> tuple[str, ...]:
        state = self._bus.read(CdiState)
        kinds = {file.kind for file in state.files} if state is not None else set()
        return tuple(extra for extra, kind in EXTRA_KINDS.items() if kind in kinds)

    def _begin(self, tasks: TaskGroup, plugin: DevicePlugin) -> _Served:
        own = plugin if isinstance(plugin, ResourcePlugin) else None
        served = self._served[plugin.resource] = _Served(plugin, anyio.CancelScope(), own)
        self._conditions.set("plugin-not-registered", key=plugin.resource, detail="it has not been registered so far")
        tasks.start_soon(self._serve_one, served, name=f"deviceplugin {plugin.resource}")
        return served

    async def _serve_one(self, served: _Served) -> None:
        """Serve a resource until removed; a failing resource does not stop the others."""
        resource = Resource(name=served.plugin.resource, devices=())
        with served.scope:
            while True:
                try:
                    await self._serve(served.plugin, resource.socket, self._note_standing)
                except NodeagentError as error:
                    self._log.warning("resource_not_served", resource=resource.name, error=str(error))
                    lost = AdvertisedResource(
                        name=resource.name, socket=resource.socket, registered=False, last_error=str(error)
                    )
                    self._note_standing(lost)
                await anyio.sleep(RETRY_SECONDS)
        # Only now is the resource's socket free for a successor.
        self._ending.discard(resource.name)
        for code in ("plugin-not-registered", "plugin-contested"):
            self._conditions.clear(code, key=resource.name)
        self._waker.wake()

    def _note_standing(self, standing: AdvertisedResource) -> None:
        before = self._standing.get(standing.name)
        if standing.name not in self._served or standing == before:
            return
        self._standing[standing.name] = standing
        if standing.registered:
            self._conditions.clear("plugin-not-registered", key=standing.name)
        else:
            self._conditions.set("plugin-not-registered", key=standing.name, detail=standing.last_error)
        self._conditions.show("plugin-contested", standing.contested, key=standing.name)
        own = self._served[standing.name].own
        envelope = self._publish(own.cause if own is not None else None)
        if standing.devices and (before is None or before.devices != standing.devices):
            healthy = sum(device.healthy for device in standing.devices)
            advertised = DevicesAdvertised(resource=standing.name, healthy=healthy, total=len(standing.devices))
            self._bus.publish_fact(advertised, source=self.name, cause=envelope)
        if before is None or before.registered != standing.registered:
            event = "resource_registered" if standing.registered else "resource_unregistered"
            self._log.info(event, resource=standing.name, error=standing.last_error)
        self._waker.wake()

    def _publish(self, cause: Cause) -> Envelope[PluginState]:
        standing = tuple(self._standing[name] for name in sorted(self._standing))
        state = PluginState(resources=standing, account=self._account)
        return self._bus.publish_state(state, source=self.name, cause=cause)

    def _keep_summary(self, plan: ResourcePlan, view: View, settings: Settings) -> OfferSummary | None:
        """The account of unoffered devices; planned again only after a change of its sources."""
        if not settings.device_plugin.enabled:
            return None
        parts, told = self._bus.read(FractionOffers) or NO_FRACTIONS, self._bus.read(PublishedSlices)
        origin = (plan, view, settings.gpus, tuple(self._standing.values()), parts, told)
        if self._account is None or origin != self._accounted:
            self._accounted = origin
            own = {name for name, served in self._served.items() if served.own is not None}
            offered = list_offered(one for one in self._standing.values() if one.name in own)
            claimed = find_claimed(self._bus.read(Offering), told, view)
            elsewhere = {**find_parted(parts, self._standing), **claimed}
            return plan_summary(view.inventory, settings, plan, view, offered, elsewhere)
        return self._account

    def _report_problems(self, plan: ResourcePlan, no_channel: str, doubled: Iterable[ResourceName]) -> None:
        problems = {problem.subject: problem.reason for problem in plan.problems}
        for name in doubled:
            problems[name] = "GPUs are given whole and in parts by this name: rename it in `resources` or `fractions`"
        if no_channel:
            problems["device_plugin.imex_channel_ids"] = no_channel
        self._conditions.replace("plugin-devices-withheld", problems)
