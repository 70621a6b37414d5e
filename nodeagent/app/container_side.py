"""Builds the parts that make GPUs visible in containers: specifications and runtime configuration."""

from nodeagent.app.driver_files import choose_driver_files
from nodeagent.app.plan import AgentPlan
from nodeagent.components.cdi.component import Cdi
from nodeagent.config.live import LiveSettings
from nodeagent.edge.host.cdi_files import DEFAULT_DIRECTORIES, SpecFiles
from nodeagent.kernel.bus import Bus
from nodeagent.kernel.component import Component, ComponentSpec
from nodeagent.kernel.conditions import Conditions
from nodeagent.kernel.worker_thread import WorkerThread


class ContainerSide:
    """What the cdi and runtime components are wired to; lives as long as the process."""

    def __init__(self, bus: Bus, conditions: Conditions, live: LiveSettings, plan: AgentPlan) -> None:
        self._bus, self._conditions, self._live = bus, conditions, live
        # A simulation has its directory to itself: what the host's own directories hold is none of its business.
        self._others = DEFAULT_DIRECTORIES if plan.simulation is None else ()
        self._workers = [WorkerThread("driver files"), WorkerThread("cdi directories")]

    def specs(self) -> tuple[ComponentSpec, ...]:
        """Who of them exists with these settings."""
        if not self._live.now.cdi.enabled:
            return ()
        return (ComponentSpec("cdi", self._build_cdi, needs=("driver_ready",), stop_stage=10),)

    def close(self) -> None:
        """Let the threads end."""
        for worker in self._workers:
            worker.close()

    def _build_cdi(self) -> Component:
        settings = self._live.now
        return Cdi(
            self._bus,
            self._conditions,
            self._live,
            choose_driver_files(settings, self._workers[0]),
            SpecFiles(settings.cdi.dir, others=self._others, worker=self._workers[1]),
        )
