"""Builds the components that make GPUs visible in containers: specifications and runtime configuration."""

import os

from nodeagent.app.host_root import choose_driver_files
from nodeagent.app.plan import AgentPlan
from nodeagent.app.runtime_edge import build_runtime_edge
from nodeagent.app.services import Services
from nodeagent.components.cdi.component import Cdi
from nodeagent.components.cdi.keep_shim import ShimUpdater
from nodeagent.components.runtime.component import Runtime
from nodeagent.config.live import LiveSettings
from nodeagent.core.children.worker_thread import WorkerThread
from nodeagent.core.life.component import Component, ComponentSpec
from nodeagent.core.life.handle import Handle
from nodeagent.edge.host.files.cdi_files import DEFAULT_DIRECTORIES, SpecFiles
from nodeagent.edge.host.files.host_program import HostProgram
from nodeagent.edge.host.machine.host_paths import HostPaths
from nodeagent.edge.host.shim.shim_host import HostShim
from nodeagent.model.errors import SpecsUnavailable
from nodeagent.model.ports import DriverFileSource
from nodeagent.rules.cdi_names import CLAIM_FILES, DEVICE_FRACTION_FILES, FRACTION_FILES

CDI_GATE = "cdi_ready"
RUNTIME_GATE = "runtime_ready"


class ContainerWiring:
    """The dependencies of the cdi and runtime components; lives as long as the process."""

    def __init__(self, services: Services, plan: AgentPlan, driver_files: DriverFileSource | None = None) -> None:
        self._services, self._live = services, services.live
        self._driver_files = driver_files
        self.is_simulation = plan.simulation is not None
        self._runtime = build_runtime_edge(self._live.now)
        self.cdi: Handle[Cdi] = Handle(SpecsUnavailable)
        self._workers = [WorkerThread(name) for name in ("driver files", "cdi directories", "cdi files")]

    def specs(self) -> tuple[ComponentSpec, ...]:
        """The components of this side, by settings."""
        specs = []
        if self._live.now.cdi.enabled:
            needs, opens = ("driver_ready",), (CDI_GATE,)
            specs.append(ComponentSpec("cdi", self._build_cdi, needs=needs, opens=opens, stop_stage=10))
        if not self.is_simulation:
            # Parts of other vendors' devices are given back by the runtime's word, without any driver.
            waits = () if self._live.now.devices.divisible else ("driver_ready",)
            opens = (RUNTIME_GATE,)
            specs.append(ComponentSpec("runtime", self._build_runtime, needs=waits, opens=opens, stop_stage=10))
        return tuple(specs)

    def list_gates_of_plugins(self) -> tuple[str, ...]:
        """The gates before a whole GPU is advertised: its CDI name is written, and the runtime was looked after.

        Without them, a pod could be admitted with a name missing from all specifications.
        """
        settings = self._live.now
        uses_cdi = any(strategy.startswith("cdi-") for strategy in settings.device_plugin.device_list_strategy)
        gates = [CDI_GATE] if settings.cdi.enabled and uses_cdi else []
        return (*gates, RUNTIME_GATE) if settings.runtime.manage and not self.is_simulation else tuple(gates)

    def list_fraction_gates(self) -> tuple[str, ...]:
        """The gates before a fraction is advertised: specifications can be written, and the runtime is examined."""
        runtime = self._live.now.runtime
        waits = (runtime.manage or runtime.shim) and not self.is_simulation
        return (CDI_GATE, RUNTIME_GATE) if waits else (CDI_GATE,)

    def close(self) -> None:
        """Let the threads end."""
        for worker in self._workers:
            worker.close()
        self._runtime.close()

    @property
    def _has_shim(self) -> bool:
        """Whether the runtime shim is wanted, or its table is left from former settings."""
        settings = self._live.now
        if self.is_simulation:
            return False
        table = settings.shim.table_dir
        places = (table, settings.node.host_root / table.relative_to("/"))
        return settings.runtime.shim or any(map(os.path.lexists, places))

    def _build_runtime(self) -> Component:
        return Runtime(*self._services, self._runtime)

    def _build_cdi(self) -> Component:
        bus, conditions, _, live = self._services
        settings = live.now
        host = HostPaths(settings.node.host_root)
        # A simulation has its own directory: the files in the host's directories are not its business.
        others = () if self.is_simulation else DEFAULT_DIRECTORIES
        return Cdi(
            bus,
            conditions,
            live,
            self._driver_files or choose_driver_files(settings, self._workers[0]),
            SpecFiles(
                settings.cdi.dir,
                others=others,
                worker=self._workers[1],
                writer=self._workers[2],
                host=host,
                passing=(FRACTION_FILES, DEVICE_FRACTION_FILES, CLAIM_FILES),
            ),
            hook=None
            if self.is_simulation
            else HostProgram(self._workers[0], host=host, shared=settings.node.state_dir),
            shim=build_shim_updater(self._live, self._workers[0]) if self._has_shim else None,
            handle=self.cdi,
        )


def build_shim_updater(live: LiveSettings, worker: WorkerThread) -> ShimUpdater:
    """What keeps this host's runtime shim up to date."""
    node = live.now.node
    host = HostShim(
        worker,
        host=HostPaths(node.host_root),
        shared=node.state_dir,
        proc_root=node.proc_dir,
        sys_root=node.sys_dir,
    )
    return ShimUpdater(live, host)
