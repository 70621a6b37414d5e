"""Builds all components with their dependencies; the table of components is here and nowhere else."""

import os
from collections.abc import Sequence
from functools import cached_property, partial

from nodeagent import __version__
from nodeagent.app.control import Control
from nodeagent.app.driver_release import DriverRelease
from nodeagent.app.endpoints import Listeners
from nodeagent.app.fault_orders import FaultOrders
from nodeagent.app.hardware import ChooseHardware, Hardware, choose_hardware
from nodeagent.app.optional_components import DEVICES_GATE, OptionalComponents
from nodeagent.app.plan import AgentPlan
from nodeagent.app.services import Services
from nodeagent.app.wiring.cluster import ClusterWiring
from nodeagent.app.wiring.container import ContainerWiring
from nodeagent.app.wiring.kubelet import KubeletWiring
from nodeagent.app.wiring.usage import UsageWiring
from nodeagent.components.allocations.tabulate import tabulate_faulted, tabulate_history, tabulate_receipts
from nodeagent.components.driver.component import Driver, DriverHost
from nodeagent.components.exporter.component import AgentCounts, AgentFactsSource, Exporter
from nodeagent.components.health.component import Health
from nodeagent.components.health.verdict_store import VERDICTS_VERSION
from nodeagent.components.inventory.component import InventoryComponent
from nodeagent.components.inventory.gpu_store import STORE
from nodeagent.components.offering.component import OfferingComponent
from nodeagent.components.web.api.build import Identity
from nodeagent.components.web.component import Listening, Sources, WebComponent
from nodeagent.components.web.event_store import EVENT_STORE_VERSION
from nodeagent.components.web.view import NodeView
from nodeagent.config.live import LiveSettings
from nodeagent.config.schema import Settings
from nodeagent.core.channels.bus import Bus
from nodeagent.core.children.worker_thread import WorkerThread
from nodeagent.core.clock import SystemClock
from nodeagent.core.conditions import Conditions
from nodeagent.core.introspect import Introspection
from nodeagent.core.life.backoff import BackoffSettings
from nodeagent.core.life.budget import BudgetSettings
from nodeagent.core.life.component import Component, ComponentSpec
from nodeagent.core.life.gates import Gates
from nodeagent.core.life.orders import OrderHandlers
from nodeagent.core.life.report import ComponentReport
from nodeagent.core.life.runner import RunnerSettings
from nodeagent.core.life.supervisor import Supervisor, SupervisorSettings
from nodeagent.edge.host.files.sealed_file import SealedFile
from nodeagent.edge.host.files.sealed_store import SealedStore
from nodeagent.edge.host.processes.process_places import HostProcessPlaces
from nodeagent.edge.http.capacity import Capacity, decide_capacity, read_descriptor_limit
from nodeagent.model.conditions import CATALOGUE
from nodeagent.model.gpu import Inventory

PLUGIN_GATE = "plugin_registered"
STOP_RESERVE_SECONDS = 2.0
"""Kept back from the total for the time after the components: the GPU worker's end and the log's last line."""


class Composition:
    """What the builders of components share; lives as long as the process."""

    def __init__(self, plan: AgentPlan, listeners: Listeners, hardware: Hardware, live: LiveSettings) -> None:
        self.plan, self.listeners, self.hardware, self.live = plan, listeners, hardware, live
        settings = live.now
        self.clock = SystemClock()
        self.started_seconds = self.clock.wall()
        self.node = settings.node.name or os.uname().nodename
        self.names = (self.node, os.uname().nodename)
        self.bus = Bus(self.clock)
        self.conditions = Conditions(self.bus, self.clock, CATALOGUE)
        self.services = Services(self.bus, self.conditions, self.clock, live)
        self.capacity = self._decide_capacity()
        self.introspection = Introspection()
        self.kubelet = KubeletWiring(self.services, self.node, hardware.vendor)
        self.orders = OrderHandlers()
        self.containers = ContainerWiring(self.services, plan, hardware.driver_files)
        simulation = hardware.simulation
        self.usage = UsageWiring(
            self.services,
            made_up=simulation.places if simulation is not None and plan.simulation is not None else None,
        )
        identify = self.kubelet.identify_holders
        self.cluster = ClusterWiring(
            self.services, plan.environ, self.node, self.orders, lambda: self.control, identify
        )
        self.optional = OptionalComponents(
            self.services,
            (self.kubelet, self.containers, self.cluster),
            hardware,
            self._open_store,
            lambda: self.gates,
            self.node,
            self.orders,
        )
        specs = self.specs()
        self.gates = Gates(list_gates(specs), clock=self.clock)
        self.supervisor = Supervisor(
            specs, self.gates, self.bus, self.conditions, self.clock, plan_supervision(settings)
        )
        self.control = Control(self.bus, self.conditions, live, self.orders, plan.reload_settings, plan.recalled)
        self.driver_release = DriverRelease(self.bus, live, self.orders, hardware.gpus)
        FaultOrders(self.bus, self.orders, hardware.faults, self.supervisor.inject)

    def specs(self) -> tuple[ComponentSpec, ...]:
        """The table of components: their gates, stages and builders."""
        return (
            *self.optional.slice_specs(),
            ComponentSpec("web", self._build_web, vital=True, stop_stage=40),
            ComponentSpec("driver", self._build_driver, opens_itself=("driver_ready",), vital=True, stop_stage=30),
            ComponentSpec(
                "inventory",
                self._build_inventory,
                # It waits for the driver itself: with all GPUs gone no driver gets ready, yet the GPUs must be missed.
                opens=("inventory_known",),
                vital=True,
                stop_stage=20,
            ),
            ComponentSpec(
                "health",
                self._build_health,
                needs=("inventory_known",),
                opens=("health_known",),
                vital=True,
                stop_stage=10,
            ),
            ComponentSpec(
                "allocations",
                self.kubelet.build_allocations,
                opens=("allocations_recovered",),
                vital=True,
                stop_stage=30,
            ),
            ComponentSpec(
                "offering",
                self._build_offering,
                needs=("inventory_known", "allocations_recovered"),
                opens=("doors_known",),
                vital=True,
                stop_stage=20,
            ),
            *self.containers.specs(),
            *self._plugin_specs(),
            *self.optional.specs(),
            *self.usage.specs(self.listeners, self.names, lambda: self.exporter),
            ComponentSpec("exporter", lambda: self.exporter, stop_stage=20),
            *self.cluster.specs(),
        )

    def _plugin_specs(self) -> tuple[ComponentSpec, ...]:
        settings = self.live.now
        has_classes = bool(settings.devices.classes)
        if not (settings.device_plugin.enabled or settings.fractions.enabled or has_classes):
            return ()
        # Before the first verdict every device would be advertised as healthy, and pods refused a moment later.
        for_gpus = ("inventory_known", "health_known", "doors_known", *self.containers.list_gates_of_plugins())

        async def wait_for_gpus() -> None:
            await self.gates.wait_open(*for_gpus)

        plugin = ComponentSpec(
            "deviceplugin",
            partial(self.kubelet.build_plugins, wait_for_gpus if has_classes else None),
            needs=("allocations_recovered", DEVICES_GATE) if has_classes else ("allocations_recovered", *for_gpus),
            opens=(PLUGIN_GATE,),
            vital=True,
            stop_stage=10,
        )
        return (plugin,)

    def _needs_gpus(self) -> bool:
        """Whether this node should have GPUs: not with other devices configured, unless the settings say so."""
        settings = self.live.now
        return not settings.devices.classes or bool(settings.gpus.expected) or self.plan.require_driver

    async def aclose(self) -> None:
        """Close all parts besides components."""
        self.optional.close()
        self.control.close()
        self.kubelet.close()
        self.containers.close()
        self.usage.close()
        await self.cluster.aclose()

    def _build_driver(self) -> Component:
        hardware = self.hardware
        return Driver(
            self.bus,
            self.gates,
            self.conditions,
            DriverHost(hardware.probe, hardware.nodes, hardware.markers, hardware.read_place, hardware.modules),
            lambda: self.live.now.driver,
            is_needed=self._needs_gpus,
        )

    def _build_inventory(self) -> Component:
        store = self._open_store(*STORE)
        return InventoryComponent(
            self.bus, self.conditions, self.clock, self.hardware.gpus, self.live, store, self.orders
        )

    def _build_offering(self) -> Component:
        return OfferingComponent(self.bus, self.conditions, self.clock, self.live, self.kubelet.journal, self.orders)

    def _open_store(self, name: str, seal: str, version: int) -> SealedStore:
        node = self.live.now.node
        return SealedStore(SealedFile(node.state_dir / name, seal, version), proc_root=node.proc_dir)

    def _build_health(self) -> Component:
        settings = self.live.now
        is_simulated = settings.gpus.simulated_profile is not None
        return Health(
            *self.services,
            self._open_store("verdicts.json", "nodeagent-verdicts", VERDICTS_VERSION),
            self.orders,
            kernel_log=None if is_simulated else settings.health.kernel_log,
        )

    @cached_property
    def exporter(self) -> Exporter:
        """The exporter for the life of the process: totals outlive a restart of the component."""
        agent = AgentFactsSource(
            self.bus,
            self.gates,
            self.conditions,
            self.clock,
            self.introspection,
            AgentCounts(self.reports, self.cluster.count_requests, self.kubelet.read_admission),
            version=__version__,
            started_seconds=self.started_seconds,
        )
        # The processes of simulated GPUs are made up: their numbers must not be looked up on this host.
        is_simulated = self.live.now.gpus.simulated_profile is not None
        places = None if is_simulated else HostProcessPlaces(WorkerThread("process places"))
        return Exporter(
            *self.services,
            agent,
            places,
            host=self.node,
            want=self.hardware.extras.want,
        )

    def _build_web(self) -> Component:
        identity = Identity(
            version=__version__,
            node=self.node,
            gpu_source=self.live.now.gpus.source,
            pid=os.getpid(),
            started_seconds=self.started_seconds,
            vital_gates=self._list_vital_gates(),
            notices=self.plan.loaded.notices,
        )
        view = NodeView(
            self.bus.read,
            self.bus.history,
            identity,
            gates=self.gates.states,
            conditions=self.conditions.active,
            reports=self.reports,
            receipts=lambda: tabulate_faulted(self.kubelet.journal.history, self.bus.read(Inventory)),
            wall=self.clock.wall,
        )
        return WebComponent(
            self.bus,
            view,
            self.orders,
            self.live,
            Listening(
                public=self.listeners.public,
                admin=self.listeners.admin,
                names=self.names,
                capacity=self.capacity,
                access=self.listeners.access,
            ),
            Sources(
                metrics=self.exporter.answer,
                introspect=self._introspect,
                list_history=lambda: tabulate_history(self.kubelet.journal.history),
                list_receipts=lambda: tabulate_receipts(self.kubelet.journal.history, self.bus.read(Inventory)),
                list_slices=self.optional.list_slices,
            ),
            conditions=self.conditions,
            past=self._open_store("events.json", "nodeagent-events", EVENT_STORE_VERSION),
        )

    def _decide_capacity(self) -> Capacity:
        http = self.live.now.http
        capacity = decide_capacity(read_descriptor_limit(), http.max_connections, http.max_connections_per_address)
        if capacity.shortage:
            self.conditions.set("descriptors-few", detail=capacity.shortage)
        return capacity

    def _list_vital_gates(self) -> frozenset[str]:
        specs = [spec for spec in self.specs() if spec.vital]
        return frozenset(gate for spec in specs for gate in (*spec.opens, *spec.opens_itself))

    def reports(self) -> Sequence[ComponentReport]:
        """The supervisor's reports on all components."""
        return self.supervisor.reports()

    def _introspect(self) -> object:
        return {"process": self.introspection.snapshot(), "bus": self.bus.statistics()}


def list_gates(specs: Sequence[ComponentSpec]) -> tuple[str, ...]:
    """Every gate with a component to open it, in the order of the table; any other gate would look closed for ever."""
    return tuple(gate for spec in specs for gate in (*spec.opens_itself, *spec.opens))


def plan_supervision(settings: Settings) -> SupervisorSettings:
    """The supervisor's settings, from the agent's."""
    section = settings.supervisor
    return SupervisorSettings(
        runner=RunnerSettings(
            backoff=BackoffSettings(
                first_seconds=section.restart_min_seconds,
                limit_seconds=section.restart_max_seconds,
                stable_seconds=section.stable_after_seconds,
            ),
            budget=BudgetSettings(allowed=section.crash_budget, window_seconds=section.crash_window_seconds),
        ),
        stop_total_seconds=max(1.0, settings.shutdown.total_seconds - STOP_RESERVE_SECONDS),
    )


def compose(plan: AgentPlan, listeners: Listeners, choose: ChooseHardware = choose_hardware) -> Composition:
    """All parts of an agent.

    Raises:
        SourceUnusable: GPUs cannot come from where the settings say.
    """
    live = LiveSettings(plan.loaded.settings)
    seed = plan.simulation.seed if plan.simulation is not None else 1
    hardware = choose(live, live.now.node.name or os.uname().nodename, seed)
    return Composition(plan, listeners, hardware, live)
