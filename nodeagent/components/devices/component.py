"""Gives devices of any vendor to containers, by the classes of the configuration.

Owns `DeviceTable`, the resources of all classes and the specifications of their devices. Nodes that come and go are
seen within two seconds, health is polled in the period of each class.
Refuses to know the purpose of a device.
"""

from collections.abc import Mapping, Sequence
from functools import partial

import anyio
from anyio.abc import TaskStatus

from nodeagent.components.devices.decide import (
    Findings,
    JudgedDevice,
    decide_conditions,
    find_holders,
    look_at,
    plan_paths,
    plan_readings,
    plan_scan,
    plan_table,
)
from nodeagent.components.devices.fraction_specs_task import ClassFractionSpecs
from nodeagent.components.devices.offer import ClassOffer
from nodeagent.components.devices.plugin_task import ClassPlugins
from nodeagent.config.live import LiveSettings
from nodeagent.config.sections.devices import DeviceClass
from nodeagent.core.channels.bus import Bus
from nodeagent.core.channels.envelope import Cause, Envelope
from nodeagent.core.channels.mailbox import Waker
from nodeagent.core.channels.news import News
from nodeagent.core.clock import Clock
from nodeagent.core.conditions import Conditions
from nodeagent.core.life.report import Degraded
from nodeagent.core.log.lines import get_logger
from nodeagent.edge.host.devices.device_sensors import DeviceSensors
from nodeagent.edge.host.devices.host_scan import HostScan
from nodeagent.edge.host.files.cdi_files import SpecFiles
from nodeagent.model.allocation import Allocation, AllocationTable
from nodeagent.model.devices import DeviceClassState, DeviceReadingTable, DeviceTable, HostDevices, Standing
from nodeagent.model.errors import NodeagentError
from nodeagent.model.events import ConfigurationReloaded, DeviceFound, DeviceJudged, DeviceLost
from nodeagent.model.gpu import Inventory
from nodeagent.model.ids import DeviceId, GpuUuid, ResourceName
from nodeagent.model.journal import FractionTable
from nodeagent.rules.devices.answer import SPEC_PREFIX, is_named, name_spec_file, plan_list, render_spec
from nodeagent.rules.devices.group import list_extra_nodes, name_resource, plan_classes
from nodeagent.rules.devices.health import plan_command
from nodeagent.rules.devices.prefer import find_newcomers, score_nearness
from nodeagent.rules.devices.sensors import Sensed, plan_sensors
from nodeagent.rules.ids import find_uuid

RETRY_SECONDS = 5.0
"""Pause after a failed poll or a failed write of a specification."""
NEWCOMER_SECONDS = 5.0
"""How long a request may be meant for the container that was given GPUs last."""
NOT_NAMED = "devices-not-named"


class Devices:
    """The component; the kubelet's questions go to the plugins."""

    name = "devices"

    def __init__(
        self,
        bus: Bus,
        conditions: Conditions,
        clock: Clock,
        live: LiveSettings,
        plugins: ClassPlugins,
        *,
        scan: HostScan,
        sensors: DeviceSensors,
        specs: SpecFiles,
    ) -> None:
        """`scan` and `sensors` read the host, `specs` are the CDI specifications for container runtimes."""
        self._bus, self._conditions, self._clock, self._live, self._plugins = bus, conditions, clock, live, plugins
        self._scan, self._sensors, self._specs = scan, sensors, specs
        self._sensed: Mapping[str, Sensed] = {}
        self._host = HostDevices()
        self._known: dict[DeviceId, JudgedDevice] = {}
        self.fraction_specs = ClassFractionSpecs(
            live, specs, lambda: self._host, lambda: (known.device for known in self._known.values())
        )
        self._texts: Mapping[str, str] = {}
        self._commands: dict[DeviceId, str] = {}
        self._written: dict[str, bytes] = {}
        self._due: dict[ResourceName, float] = {}
        self._waker, self._has_looked = Waker(), Waker()
        self._is_scan_due = True
        self._news = News()
        self._reloaded: Envelope[ConfigurationReloaded] | None = None
        self._log = get_logger(component=self.name)

    async def run(self, *, task_status: TaskStatus[None]) -> None:
        """Poll, publish, wait; ready after the first complete poll."""
        with self._plugins.component.filled(self):
            await self._run(task_status)

    async def _run(self, task_status: TaskStatus[None]) -> None:
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(
                self._waker.follow,
                self._bus.watch_all(AllocationTable, FractionTable, Inventory, client=self.name),
                name="devices states",
            )
            tasks.start_soon(self._watch_settings, name="devices settings")
            await self._take_over_specs()
            while not await self._look(is_new=True):
                with anyio.move_on_after(RETRY_SECONDS):
                    await self._waker.wait()
            tasks.start_soon(self._watch_nodes, name="devices nodes")
            task_status.started()
            while True:
                with anyio.move_on_after(self._find_pause()) as pause:
                    await self._waker.wait()
                if not await self._look(is_new=pause.cancelled_caught):
                    self._is_scan_due = True
                    await anyio.sleep(RETRY_SECONDS)

    async def _take_over_specs(self) -> None:
        """Keep the right specifications of an earlier agent; the others are removed when unused."""
        try:
            contents = await self._specs.read_specs()
        except NodeagentError as error:
            self._log.warning("device_specs_not_read", reason=str(error))
            return
        named = ((each.path.rpartition("/")[2], each.content) for each in contents)
        self._written = {name: content for name, content in named if name.startswith(SPEC_PREFIX)}

    async def _watch_settings(self) -> None:
        with self._bus.listen(ConfigurationReloaded, client=self.name) as reloads:
            async for self._reloaded in reloads:
                self._wake_to_scan()

    async def _watch_nodes(self) -> None:
        while True:
            try:
                await self._scan.wait_change()
            except NodeagentError as error:
                self._log.debug("device_watch_interrupted", reason=str(error))
                await anyio.sleep(RETRY_SECONDS)
            self._wake_to_scan()
            # The next change is a difference from the scan just requested, so wait for its result.
            await self._has_looked.wait()

    def _wake_to_scan(self) -> None:
        self._is_scan_due = True
        self._waker.wake()

    def _find_pause(self) -> float:
        """Time until the next class is due for a poll of its health."""
        periods = [each.health.period_seconds for each in self._live.now.devices.classes]
        now = self._clock.monotonic()
        due = [self._due.get(name_resource(each), now) for each in self._live.now.devices.classes]
        return max(0.05, min(due) - now) if periods else RETRY_SECONDS

    async def _look(self, *, is_new: bool) -> bool:
        """Poll everything once; False where the host does not answer, with all states unchanged."""
        classes = self._live.now.devices.classes
        self._plugins.follow(classes)
        try:
            # An allocation changes the holders of devices, and not the devices.
            if is_new or self._is_scan_due:
                self._is_scan_due = False
                self._host = await self._scan.look(plan_scan(classes))
                self._texts = await self._scan.read_files(plan_paths(classes, self._host))
                self._sensed = {place: await self._sense(place) for place in plan_sensors(classes, self._host)}
        except NodeagentError as error:
            self._bus.publish_state(Degraded(str(error)), source=self.name, key=self.name)
            self._log.warning("devices_not_looked_at", reason=str(error))
            self._publish_readings(DeviceReadingTable())
            return False
        finally:
            self._has_looked.wake()
        self._bus.retract_state(Degraded, self.name)
        due = await self._run_commands(classes)
        allocations, fractions = self._bus.read(AllocationTable), self._bus.read(FractionTable)
        held = find_holders(allocations, map(name_resource, classes), fractions)
        before = self._known
        self._known = look_at(
            classes,
            self._host,
            before,
            Findings(self._texts, self._commands, due if is_new else (), self._sensed),
            held,
            self._live.now.health.clean_polls,
        )
        table = plan_table(classes, self._host, self._known)
        cause = self._news.take(self._reloaded)
        await self._offer(classes, table, allocations or AllocationTable())
        envelope = self._bus.publish_state(table, source=self.name, cause=cause)
        self._publish_device_changes(before, held, envelope)
        self._publish_readings(plan_readings(self._known, self._sensed))
        for code, details in decide_conditions(classes, table, held).items():
            self._conditions.replace(code, details, cause=envelope)
        return True

    async def _sense(self, place: str) -> Sensed:
        try:
            return Sensed(await self._sensors.read(place))
        except NodeagentError as error:
            return Sensed(failure=str(error))

    def _publish_readings(self, table: DeviceReadingTable) -> None:
        if table != (self._bus.read(DeviceReadingTable) or DeviceReadingTable()):
            self._bus.publish_state(table, source=self.name)

    async def _run_commands(self, classes: Sequence[DeviceClass]) -> set[ResourceName]:
        """Run the commands of due classes one after the other; old answers stand meanwhile."""
        ran: set[ResourceName] = set()
        now = self._clock.monotonic()
        grouped = plan_classes(classes, self._host)
        there = {device.id for each in grouped.values() for device in each.devices}
        self._commands = {name: said for name, said in self._commands.items() if name in there}
        for each in classes:
            resource = name_resource(each)
            if self._due.get(resource, now) > now:
                continue
            self._due[resource] = now + each.health.period_seconds
            ran.add(resource)
            for device in grouped[resource].devices if each.health.command else ():
                command = plan_command(each, device)
                self._commands[device.id] = await self._scan.run_command(command, each.health.timeout_seconds)
        return ran

    async def _offer(self, classes: Sequence[DeviceClass], table: DeviceTable, allocations: AllocationTable) -> None:
        """Update the kubelet's lists, after the CDI names are written."""
        troubles: dict[str, str] = {}
        files: dict[str, bytes] = {}
        for each, state in zip(classes, table.classes, strict=True):
            if state.divisible:
                continue
            devices = tuple(device for device in state.devices if device.standing is not Standing.GONE)
            by_name = self._uses_names() and is_named(each, devices)
            unnamed = ""
            if by_name:
                files[name_spec_file(state.resource)] = content = render_spec(each, devices)
                unnamed = await self._write(name_spec_file(state.resource), content)
            if unnamed:
                troubles[state.resource] = f"{state.resource}: {unnamed}"
            self._update(each, state, allocations, by_name=by_name, unnamed=unnamed)
        await self._remove_unused(files, allocations)
        self._conditions.replace(NOT_NAMED, troubles)

    def _update(
        self,
        device_class: DeviceClass,
        state: DeviceClassState,
        allocations: AllocationTable,
        *,
        by_name: bool,
        unnamed: str,
    ) -> None:
        held = [name for one in allocations.allocations if one.resource == state.resource for name in one.devices]
        fractions = self._bus.read(FractionTable)
        divided = fractions.by_gpu if fractions is not None else ()
        listed = plan_list(() if unnamed else state.devices, state.replicas, held, divided)
        offer = ClassOffer(
            device_class,
            {device.id: device for device in state.devices},
            listed,
            list_extra_nodes(device_class, self._host),
            by_name,
            unnamed,
        )
        self._plugins.plugins[state.resource].update(offer, partial(self._score_devices, state.resource))

    def _uses_names(self) -> bool:
        """Whether containers are told devices by name, by the same setting as GPUs."""
        settings = self._live.now
        return settings.cdi.enabled and "cdi-cri" in settings.device_plugin.device_list_strategy

    async def _write(self, name: str, content: bytes) -> str:
        """Write a specification; the obstacle, if any."""
        if self._written.get(name) == content:
            return ""
        try:
            await self._specs.write_spec(name, content)
        except NodeagentError as error:
            return f"no CDI specification names its devices: {error}"
        self._written[name] = content
        return ""

    async def _remove_unused(self, files: Mapping[str, bytes], allocations: AllocationTable) -> None:
        """Remove specifications needed by no class, and by no container that may start again."""
        held = {name_spec_file(one.resource) for one in allocations.allocations}
        for name in self._written.keys() - files.keys() - held:
            try:
                await self._specs.remove_spec(name)
            except NodeagentError as error:
                self._log.warning("device_spec_not_removed", reason=str(error))
            else:
                del self._written[name]

    def _score_devices(self, resource: ResourceName) -> Mapping[str, int]:
        """How near each device is to the GPUs of the container being admitted; called when the kubelet asks."""
        inventory = self._bus.read(Inventory)
        newcomers = self._find_newcomers(resource)
        if inventory is None or not newcomers:
            return {}
        uuids = [GpuUuid(find_uuid(name)) for name in newcomers]
        found = [gpu for gpu in map(inventory.find_gpu, uuids) if gpu is not None]
        gpus = [(gpu.pci.address, gpu.numa_node) for gpu in found]
        devices = [known.device for known in self._known.values()]
        return score_nearness(devices, gpus, self._host.functions) if gpus else {}

    def score_gpus(self, resource: ResourceName) -> Mapping[str, int]:
        """How near each GPU and MIG device is to the devices of the container being admitted."""
        inventory = self._bus.read(Inventory)
        newcomers = (self._known.get(DeviceId(find_uuid(name))) for name in self._find_newcomers(resource))
        devices = [known.device for known in newcomers if known is not None and known.device.pci is not None]
        if inventory is None or not devices:
            return {}
        scores: dict[str, int] = {}
        for gpu in inventory.gpus:
            near = score_nearness(devices, [(gpu.pci.address, gpu.numa_node)], self._host.functions)
            scores |= dict.fromkeys(gpu.device_uuids, sum(near.values()))
        return scores

    def _find_newcomers(self, resource: ResourceName) -> Sequence[DeviceId]:
        allocations = self._bus.read(AllocationTable)
        if allocations is None:
            return ()
        return find_newcomers(allocations.allocations, resource, self._clock.wall(), NEWCOMER_SECONDS)

    def _publish_device_changes(
        self, before: Mapping[DeviceId, JudgedDevice], held: Mapping[str, Sequence[Allocation]], cause: Cause
    ) -> None:
        """Publish facts about devices that came, went, failed or recovered."""
        for name, known in self._known.items():
            device, was = known.device, before.get(name)
            if was is not None and was.device.standing is device.standing:
                continue
            if device.standing is Standing.GONE:
                holders = tuple(one.describe_holder() for one in held.get(name, ()))
                self._bus.publish_fact(
                    DeviceLost(device=name, name=device.name, holders=holders), source=self.name, cause=cause
                )
                self._log.warning("device_gone_while_held", device=device.name, holders=holders)
            elif was is None:
                self._bus.publish_fact(DeviceFound(device=name, name=device.name), source=self.name, cause=cause)
            else:
                judged = DeviceJudged(device=name, name=device.name, standing=device.standing, reason=device.reason)
                self._bus.publish_fact(judged, source=self.name, cause=cause)
        for name in before.keys() - self._known.keys():
            lost = DeviceLost(device=name, name=before[name].device.name)
            self._bus.publish_fact(lost, source=self.name, cause=cause)
