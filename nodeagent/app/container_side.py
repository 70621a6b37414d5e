"""Builds the parts that make GPUs visible in containers: specifications and runtime configuration."""

from pathlib import Path

from nodeagent.app.driver_files import choose_driver_files, see_in_host_root
from nodeagent.app.plan import AgentPlan
from nodeagent.components.cdi.component import Cdi
from nodeagent.components.runtime.component import Runtime
from nodeagent.config.live import LiveSettings
from nodeagent.config.schema import Settings
from nodeagent.edge.container_runtime.detect import RuntimeDetector
from nodeagent.edge.container_runtime.host_runtime import HostRuntime
from nodeagent.edge.host.cdi_files import DEFAULT_DIRECTORIES, SpecFiles
from nodeagent.edge.host.hook_program import HookProgram
from nodeagent.edge.host.host_paths import HostPaths
from nodeagent.kernel.bus import Bus
from nodeagent.kernel.clock import Clock
from nodeagent.kernel.component import Component, ComponentSpec
from nodeagent.kernel.conditions import Conditions
from nodeagent.kernel.worker_thread import WorkerThread

CDI_GATE = "cdi_ready"
RUNTIME_GATE = "runtime_ready"


def build_runtime_edge(settings: Settings) -> HostRuntime:
    """The container runtime of this node."""
    node = settings.node
    worker = WorkerThread("container runtime")
    return HostRuntime(
        node.state_dir, build_detector(settings), worker, host_root=node.host_root, proc_root=see_processes(settings)
    )


def build_detector(settings: Settings) -> RuntimeDetector:
    """What finds this node's container runtimes."""
    return RuntimeDetector(
        host_root=settings.node.host_root, proc_root=see_processes(settings), socket=settings.runtime.socket
    )


def see_processes(settings: Settings) -> Path:
    """Where the host's processes are seen: the whole host, mounted into a container, has its own /proc in it."""
    node = settings.node
    own = Path("/proc")
    return see_in_host_root(settings, own) if node.proc_dir == own else node.proc_dir


class ContainerSide:
    """What the cdi and runtime components are wired to; lives as long as the process."""

    def __init__(self, bus: Bus, conditions: Conditions, clock: Clock, live: LiveSettings, plan: AgentPlan) -> None:
        self._bus, self._conditions, self._clock, self._live = bus, conditions, clock, live
        self._is_simulation = plan.simulation is not None
        self._runtime = build_runtime_edge(live.now)
        # A simulation has its directory to itself: what the host's own directories hold is none of its business.
        self._others = DEFAULT_DIRECTORIES if plan.simulation is None else ()
        self._workers = [WorkerThread("driver files"), WorkerThread("cdi directories")]

    def specs(self) -> tuple[ComponentSpec, ...]:
        """Who of them exists with these settings."""
        specs = []
        if self._live.now.cdi.enabled:
            specs.append(
                ComponentSpec("cdi", self._build_cdi, needs=("driver_ready",), opens=(CDI_GATE,), stop_stage=10)
            )
        if not self._is_simulation:
            specs.append(
                ComponentSpec(
                    "runtime", self._build_runtime, needs=("driver_ready",), opens=(RUNTIME_GATE,), stop_stage=10
                )
            )
        return tuple(specs)

    def list_gates_of_plugins(self) -> tuple[str, ...]:
        """What must be so before a device is advertised: its name is written, and the runtime was looked after.

        Without it, a pod could be admitted onto a name that no specification has.
        """
        settings = self._live.now
        uses_cdi = any(strategy.startswith("cdi-") for strategy in settings.device_plugin.device_list_strategy)
        gates = [CDI_GATE] if settings.cdi.enabled and uses_cdi else []
        return (*gates, RUNTIME_GATE) if settings.runtime.manage and not self._is_simulation else tuple(gates)

    def close(self) -> None:
        """Let the threads end."""
        for worker in self._workers:
            worker.close()
        self._runtime.close()

    def _build_runtime(self) -> Component:
        return Runtime(self._bus, self._conditions, self._clock, self._live, self._runtime)

    def _build_cdi(self) -> Component:
        settings = self._live.now
        host = HostPaths(settings.node.host_root)
        return Cdi(
            self._bus,
            self._conditions,
            self._live,
            choose_driver_files(settings, self._workers[0]),
            SpecFiles(settings.cdi.dir, others=self._others, worker=self._workers[1], host=host),
            hook=None if self._is_simulation else HookProgram(self._workers[0], host=host),
        )
