"""Offers this node's GPUs to the kubelet and hands them to containers.

Owns one server for each resource and what each of them says: its list, its preferences, its answers.
Refuses to answer before the journal holds the allocation, and to take a resource away from a kubelet that has
containers on it: such a resource is served, with its gone devices unhealthy, until nobody holds them.
"""

from collections.abc import Awaitable, Callable, Iterable, Sequence
from typing import NamedTuple, Protocol
from uuid import uuid4

import anyio
from anyio.abc import TaskGroup, TaskStatus
from msgspec.structs import replace

from nodeagent.components.deviceplugin.account import decide_conditions, find_parted, list_offered, plan_account
from nodeagent.components.deviceplugin.advertise import (
    View,
    explain_loss,
    explain_unfitness,
    find_named,
    plan_list,
)
from nodeagent.components.deviceplugin.answer import find_missing_channels, plan_answer, select_devices
from nodeagent.components.deviceplugin.offers import OfferPlan, ResourceOffer, find_held, make_plan
from nodeagent.config.live import LiveSettings
from nodeagent.config.schema import Settings
from nodeagent.core.channels.bus import Bus
from nodeagent.core.channels.envelope import Cause, Envelope
from nodeagent.core.channels.gathered import Gathered
from nodeagent.core.channels.mailbox import Waker
from nodeagent.core.channels.news import News
from nodeagent.core.conditions import Conditions
from nodeagent.core.life.ticker import Ticker
from nodeagent.core.log.lines import get_logger
from nodeagent.model.allocation import AllocationTable
from nodeagent.model.driver import DriverState
from nodeagent.model.errors import DeviceUnhealthy, NodeagentError
from nodeagent.model.events import ConfigurationReloaded, DevicesAdvertised
from nodeagent.model.gpu import Inventory
from nodeagent.model.health import HealthReport
from nodeagent.model.ids import DeviceId, GpuUuid, ResourceName
from nodeagent.model.mig import MigState
from nodeagent.model.offering import Door, Offering
from nodeagent.model.parts import PartOffers
from nodeagent.model.plugin import (
    AdvertisedDevice,
    AdvertisedResource,
    ContainerAnswer,
    HandoutFacts,
    OfferAccount,
    PluginOptions,
    PluginState,
)
from nodeagent.model.ports import AllocationJournal, DevicePlugin, PluginSource
from nodeagent.model.runtime import CdiState
from nodeagent.rules.cdi_names import EXTRA_KINDS
from nodeagent.rules.ids import find_uuid
from nodeagent.rules.offer.devices import Resource, ResourcePlan

FACTS_SECONDS = 5.0
"""Pause between looks at device nodes that appear and vanish without a word, such as IMEX channels."""
RETRY_SECONDS = 2.0
NO_PARTS = PartOffers()
NO_ACCOUNT = OfferAccount(gpus=0, devices_offered=0)
"""Of a device plugin that is switched off: nothing is to be offered, and nothing is said of it."""


class ServeResource(Protocol):
    """Keeps one resource registered with the kubelet and its questions answered, until cancelled."""

    async def __call__(self, plugin: DevicePlugin, endpoint: str, report: Callable[[AdvertisedResource], None]) -> None:
        """Serve at the socket of this bare name; reports each change of what the kubelet knows.

        Raises:
            NodeagentError: the socket cannot be served.
        """
        ...


class ResourcePlugin:
    """One resource, as the kubelet asks about it; implements the port `DevicePlugin`."""

    options = PluginOptions(preferred_allocation=True, pre_start=True)

    def __init__(self, offer: ResourceOffer, journal: AllocationJournal) -> None:
        self._offer, self._journal = offer, journal
        self._list: Gathered[tuple[AdvertisedDevice, ...]] = Gathered(())
        self._fit: frozenset[DeviceId] = frozenset()
        self._listed: object = None
        self.cause: Cause = None
        """What the newest change of the list follows from."""

    @property
    def resource(self) -> ResourceName:
        """The extended resource that this plugin offers."""
        return self._offer.resource.name

    def update(self, offer: ResourceOffer, held: Iterable[DeviceId], cause: Cause = None) -> None:
        """Answer from now on with this; `held` are devices of this resource that containers have."""
        self._offer = offer
        gone = sorted(name for name in held if name not in offer.known)
        # Every allocation comes through here, and a list of 1,600 shares takes a millisecond to plan.
        origin = (offer.resource, offer.view, gone)
        if origin == self._listed:
            return
        self._listed = origin
        wanted = plan_list(offer.resource, offer.view, gone)
        self._fit = frozenset(device.id for device in wanted if device.healthy)
        if self._list.put(wanted):
            self.cause = cause

    async def wait_devices(self, known: tuple[AdvertisedDevice, ...] | None) -> tuple[AdvertisedDevice, ...]:
        """The whole list as soon as it differs from `known`, changes gathered for a moment.

        One fault often hits several devices within milliseconds, and each list makes the kubelet write its checkpoint.
        """
        return await self._list.wait_other(known, self._offer.settings.health_coalesce_seconds)

    def prefer(self, available: Sequence[DeviceId], must_include: Sequence[DeviceId], size: int) -> Sequence[DeviceId]:
        """The best devices of those available, away from what somebody may still hold."""
        return self._offer.preference.prefer(available, must_include, size, self._journal.doubtful())

    async def allocate(self, devices: Sequence[DeviceId]) -> ContainerAnswer:
        """What one container needs in order to use these devices; durable when it is returned.

        Raises:
            AllocationError: the devices must not be handed out.
        """
        offer = self._offer
        selected = select_devices(offer.resource, offer.known, devices)
        unfit = next((device for device in selected if device.id not in self._fit), None)
        if unfit is not None:
            raise DeviceUnhealthy(unfit.id, explain_unfitness(unfit, offer.view))
        await self._journal.record(offer.resource.name, devices)
        # Randomness is asked of the kernel, and a pod waits: only where it has a use.
        token = str(uuid4()) if "cdi-annotations" in offer.settings.device_list_strategy else ""
        return plan_answer(selected, offer.settings, offer.facts, token)

    async def pre_start(self, devices: Sequence[DeviceId]) -> None:
        """Learn who starts; refuse only what is broken.

        Raises:
            DeviceUnhealthy: the container would start on a device that does not work.
        """
        for device in devices:
            reason = explain_loss(find_uuid(device), self._offer.view)
            if reason:
                raise DeviceUnhealthy(device, reason)
        await self._journal.identify(self.resource, devices)


class _Served(NamedTuple):
    plugin: DevicePlugin
    scope: anyio.CancelScope
    own: ResourcePlugin | None = None
    """The plugin where it is this part's own, and not another part's."""


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
        others: PluginSource | None = None,
    ) -> None:
        """`others` are resources that another part answers for, and that are served like this one's own."""
        self._bus, self._conditions, self._live, self._journal = bus, conditions, live, journal
        self._serve, self._read_facts, self._others = serve, read_facts, others
        self._log = get_logger(component=self.name)
        self._served: dict[ResourceName, _Served] = {}
        self._ending: set[ResourceName] = set()
        self._standing: dict[ResourceName, AdvertisedResource] = {}
        self._facts = HandoutFacts()
        self._plan: OfferPlan | None = None
        self._account: OfferAccount | None = None
        self._accounted: tuple[object, ...] = ()
        self._waker = Waker()
        self._news = News()
        self._reloaded: Envelope[ConfigurationReloaded] | None = None

    async def run(self, *, task_status: TaskStatus[None]) -> None:
        """Serve what the bus says there is, until cancelled; ready when the kubelet knows every resource."""
        await self._read_facts_once()
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(self._watch_states, name="deviceplugin states")
            tasks.start_soon(self._watch_others, name="deviceplugin others")
            tasks.start_soon(self._watch_settings, name="deviceplugin settings")
            tasks.start_soon(self._watch_facts, name="deviceplugin facts")
            while not self._refresh(tasks):
                await self._waker.wait()
            task_status.started()
            while True:
                await self._waker.wait()
                self._refresh(tasks)

    async def _watch_states(self) -> None:
        watched = (Inventory, HealthReport, Offering, AllocationTable, CdiState, DriverState, MigState)
        with self._bus.watch_all(*watched, client=self.name) as states:
            async for _ in states:
                self._waker.wake()

    async def _watch_others(self) -> None:
        with self._bus.watch(PartOffers, client=self.name) as offers:
            async for _ in offers:
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
        """Look at the node again; returns whether it has changed. What cannot be seen now stays as it was."""
        try:
            facts = await self._read_facts(self._live.now)
        except NodeagentError as error:
            self._log.warning("handout_facts_not_read", error=str(error))
            return False
        changed = facts != self._facts
        self._facts = facts
        return changed

    def _refresh(self, tasks: TaskGroup) -> bool:
        """Serve what there is now; returns whether the kubelet knows all of it."""
        inventory = self._bus.latest(Inventory)
        if inventory is None:
            return False
        settings = self._live.now
        offering = self._bus.latest(Offering)
        closed = offering.value.list_closed(inventory.value.gpus, Door.WHOLE) if offering is not None else {}
        planned = self._plan_again(inventory.value, settings, frozenset(closed))
        facts = replace(self._facts, cdi_extras=self._find_extras())
        health = self._bus.latest(HealthReport)
        driver = self._bus.latest(DriverState)
        no_channel = find_missing_channels(settings.device_plugin, facts)
        blocked = no_channel or (driver.value.obstacle if driver is not None else "")
        cdi, table = self._bus.latest(CdiState), self._bus.latest(AllocationTable)
        cause = self._news.take(inventory, health, driver, offering, cdi, self._reloaded) or self._news.take(table)
        named = find_named(cdi.value if cdi is not None else None, settings)
        draining = offering.value.list_waiting() if offering is not None else frozenset()
        mig = self._bus.latest(MigState)
        judged, cutting = (health.value if health is not None else None), (mig.value if mig is not None else None)
        view = View(inventory.value, judged, blocked, named, closed, draining, cutting)
        is_on = settings.device_plugin.enabled
        held = find_held(table.value) if table is not None and is_on else {}
        wanted = dict.fromkeys(resource.name for resource in planned.plan.resources if is_on)
        for name in {**wanted, **held}:
            offer = planned.offer(name, view, settings.device_plugin, facts)
            if name in self._ending:
                continue
            served = self._served.get(name)
            if served is None:
                served = self._begin(tasks, ResourcePlugin(offer, self._journal))
            if served.own is not None:
                served.own.update(offer, held.get(name, ()), cause)
        others = self._others.list_plugins() if self._others is not None else {}
        for name in others.keys() - self._served.keys() - self._ending:
            self._begin(tasks, others[name])
        for name in self._served.keys() - wanted.keys() - held.keys() - others.keys():
            self._ending.add(name)
            self._served.pop(name).scope.cancel()
            self._standing.pop(name, None)
        self._report_problems(planned.plan, no_channel, others.keys() & {**wanted, **held}.keys())
        before, self._account = self._account, self._keep_account(planned.plan, view, settings)
        envelope = self._publish(cause)
        if self._account is not before:
            for code, details in decide_conditions(self._account or NO_ACCOUNT).items():
                self._conditions.replace(code, details, cause=envelope)
        return all(self._is_known(name) for name in wanted)

    def _is_known(self, name: ResourceName) -> bool:
        """Whether the kubelet has taken the resource and been sent its devices."""
        standing = self._standing.get(name)
        return standing is not None and standing.registered and bool(standing.devices)

    def _plan_again(self, inventory: Inventory, settings: Settings, closed: frozenset[GpuUuid]) -> OfferPlan:
        """The plan for this inventory and these settings; made anew only when one of them has changed."""
        kept = self._plan
        plan = self._plan = make_plan(kept, inventory, settings, closed)
        if plan is not kept:
            counts = {resource.name: len(resource.devices) for resource in plan.plan.resources}
            self._log.info("resources_planned", generation=inventory.generation, resources=counts)
        return plan

    def _find_extras(self) -> tuple[str, ...]:
        state = self._bus.latest(CdiState)
        kinds = {file.kind for file in state.value.files} if state is not None else set()
        return tuple(extra for extra, kind in EXTRA_KINDS.items() if kind in kinds)

    def _begin(self, tasks: TaskGroup, plugin: DevicePlugin) -> _Served:
        own = plugin if isinstance(plugin, ResourcePlugin) else None
        served = self._served[plugin.resource] = _Served(plugin, anyio.CancelScope(), own)
        self._conditions.set("plugin-not-registered", key=plugin.resource, detail="it has not been registered so far")
        tasks.start_soon(self._serve_one, served, name=f"deviceplugin {plugin.resource}")
        return served

    async def _serve_one(self, served: _Served) -> None:
        """Serve one resource until it is taken off; one that cannot be served does not stop the others."""
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
        # Only now is its socket free for a successor.
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
        if standing.contested:
            self._conditions.set("plugin-contested", key=standing.name, detail=standing.contested)
        else:
            self._conditions.clear("plugin-contested", key=standing.name)
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

    def _keep_account(self, plan: ResourcePlan, view: View, settings: Settings) -> OfferAccount | None:
        """What pods cannot get; planned again only when something that it is made of has changed."""
        if not settings.device_plugin.enabled:
            return None
        offers = self._bus.latest(PartOffers)
        parts = offers.value if offers is not None else NO_PARTS
        origin = (plan, view, settings.gpus, tuple(self._standing.values()), parts)
        if self._account is None or origin != self._accounted:
            self._accounted = origin
            offered = list_offered(one for one in self._standing.values() if one.name not in parts.resources)
            return plan_account(view.inventory, settings, plan, view, offered, find_parted(parts, self._standing))
        return self._account

    def _report_problems(self, plan: ResourcePlan, no_channel: str, doubled: Iterable[ResourceName]) -> None:
        problems = {problem.subject: problem.reason for problem in plan.problems}
        for name in doubled:
            problems[name] = "GPUs are given whole and in parts by this name: rename it in `resources` or `fractions`"
        if no_channel:
            problems["device_plugin.imex_channel_ids"] = no_channel
        self._conditions.replace("plugin-devices-withheld", problems)
