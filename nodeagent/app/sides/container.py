"""Builds the components that make GPUs visible in containers: specifications and runtime configuration."""

import os
from collections.abc import Callable
from typing import TYPE_CHECKING

from nodeagent.app.late import LateStart
from nodeagent.app.plan import AgentPlan
from nodeagent.config.live import LiveSettings
from nodeagent.core.channels.bus import Bus
from nodeagent.core.children.worker_thread import WorkerThread
from nodeagent.core.clock import Clock
from nodeagent.core.conditions import Conditions
from nodeagent.core.life.component import Component, ComponentSpec
from nodeagent.core.life.handle import Handle
from nodeagent.model.errors import SpecsUnavailable
from nodeagent.rules.cdi_names import CLAIM_FILES, PART_FILES

if TYPE_CHECKING:
    from nodeagent.components.cdi.component import Cdi
    from nodeagent.components.cdi.keep_shim import ShimKeeper
    from nodeagent.edge.container_runtime.host_runtime import HostRuntime

CDI_GATE = "cdi_ready"
RUNTIME_GATE = "runtime_ready"
CDI_MODULES = (
    "nodeagent.components.cdi.component",
    "nodeagent.app.driver_files",
    "nodeagent.edge.host.files.host_program",
)
SHIM_MODULES = ("nodeagent.app.sides.shim",)
RUNTIME_MODULES = ("nodeagent.components.runtime.component", "nodeagent.app.runtime_edge")


class ContainerSide:
    """The dependencies of the cdi and runtime components; lives as long as the process."""

    def __init__(
        self, bus: Bus, conditions: Conditions, clock: Clock, live: LiveSettings, late: LateStart, plan: AgentPlan
    ) -> None:
        self._bus, self._conditions, self._clock, self._live, self._late = bus, conditions, clock, live, late
        self.is_simulation = plan.simulation is not None
        self._runtime: HostRuntime | None = None
        self.cdi: Handle[Cdi] = Handle(SpecsUnavailable)
        self._workers = [WorkerThread(name) for name in ("driver files", "cdi directories", "cdi files")]

    def specs(self) -> tuple[ComponentSpec, ...]:
        """The components of this side, by settings."""
        specs = []
        if self._live.now.cdi.enabled:
            modules = (*CDI_MODULES, *SHIM_MODULES) if self._has_shim else CDI_MODULES
            # The runtime component waits for the shim, and the device plugin for the runtime, where managed.
            waits = self._has_shim and RUNTIME_GATE in self.list_gates_of_plugins()
            build = self._choose_build("cdi", RUNTIME_GATE if waits else CDI_GATE, self._build_cdi, modules)
            specs.append(ComponentSpec("cdi", build, needs=("driver_ready",), opens=(CDI_GATE,), stop_stage=10))
        if not self.is_simulation:
            build = self._choose_build("runtime", RUNTIME_GATE, self._build_runtime, RUNTIME_MODULES)
            specs.append(ComponentSpec("runtime", build, needs=("driver_ready",), opens=(RUNTIME_GATE,), stop_stage=10))
        return tuple(specs)

    def list_gates_of_plugins(self) -> tuple[str, ...]:
        """The gates before a whole GPU is advertised: its CDI name is written, and the runtime was looked after.

        Without them, a pod could be admitted with a name missing from all specifications.
        """
        settings = self._live.now
        uses_cdi = any(strategy.startswith("cdi-") for strategy in settings.device_plugin.device_list_strategy)
        gates = [CDI_GATE] if settings.cdi.enabled and uses_cdi else []
        return (*gates, RUNTIME_GATE) if settings.runtime.manage and not self.is_simulation else tuple(gates)

    def list_gates_of_parts(self) -> tuple[str, ...]:
        """The gates before a fraction is advertised: specifications can be written, and the runtime is examined."""
        runtime = self._live.now.runtime
        waits = (runtime.manage or runtime.shim) and not self.is_simulation
        return (CDI_GATE, RUNTIME_GATE) if waits else (CDI_GATE,)

    def close(self) -> None:
        """Let the threads end."""
        for worker in self._workers:
            worker.close()
        if self._runtime is not None:
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

    def _choose_build(
        self, name: str, gate: str, build: Callable[[], Component], modules: tuple[str, ...]
    ) -> Callable[[], Component]:
        """Late, unless the device plugin waits for the gate."""
        if self._live.now.device_plugin.enabled and gate in self.list_gates_of_plugins():
            return build
        return lambda: self._late.wrap(name, build, *modules)

    def _build_runtime(self) -> Component:
        from nodeagent.app.runtime_edge import build_runtime_edge  # noqa: PLC0415 - see `late`
        from nodeagent.components.runtime.component import Runtime  # noqa: PLC0415 - likewise

        if self._runtime is None:
            self._runtime = build_runtime_edge(self._live.now)
        return Runtime(self._bus, self._conditions, self._clock, self._live, self._runtime)

    def _build_cdi(self) -> Component:
        from nodeagent.app.driver_files import choose_driver_files  # noqa: PLC0415 - see `late`
        from nodeagent.components.cdi.component import Cdi  # noqa: PLC0415 - likewise
        from nodeagent.edge.host.files.cdi_files import DEFAULT_DIRECTORIES, SpecFiles  # noqa: PLC0415 - likewise
        from nodeagent.edge.host.files.host_program import HostProgram  # noqa: PLC0415 - likewise
        from nodeagent.edge.host.machine.host_paths import HostPaths  # noqa: PLC0415 - likewise

        settings = self._live.now
        host = HostPaths(settings.node.host_root)
        # A simulation has its own directory: the files in the host's directories are not its business.
        others = () if self.is_simulation else DEFAULT_DIRECTORIES
        return Cdi(
            self._bus,
            self._conditions,
            self._live,
            choose_driver_files(settings, self._workers[0]),
            SpecFiles(
                settings.cdi.dir,
                others=others,
                worker=self._workers[1],
                writer=self._workers[2],
                host=host,
                passing=(PART_FILES, CLAIM_FILES),
            ),
            hook=None
            if self.is_simulation
            else HostProgram(self._workers[0], host=host, shared=settings.node.state_dir),
            shim=self._build_shim() if self._has_shim else None,
            handle=self.cdi,
        )

    def _build_shim(self) -> "ShimKeeper":
        from nodeagent.app.sides.shim import build_shim_keeper  # noqa: PLC0415 - off means that it is not loaded

        return build_shim_keeper(self._live, self._workers[0])
