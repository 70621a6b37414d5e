"""Builds who measures what containers use of their parts of GPUs."""

from nodeagent.app.late import LateStart
from nodeagent.config.live import LiveSettings
from nodeagent.core.channels.bus import Bus
from nodeagent.core.children.worker_thread import WorkerThread
from nodeagent.core.clock import Clock
from nodeagent.core.life.component import Component, ComponentSpec

USAGE_MODULE = "nodeagent.components.usage.component"


class UsageSide:
    """Holds the thread in which processes are looked up; where nothing is given in parts, there is none."""

    def __init__(self, bus: Bus, clock: Clock, live: LiveSettings, late: LateStart) -> None:
        self._bus, self._clock, self._live, self._late = bus, clock, live, late
        self._worker: WorkerThread | None = None

    def specs(self) -> tuple[ComponentSpec, ...]:
        """The component, where somebody may have parts."""
        if not self._live.now.fractions.enabled:
            return ()
        build = self._build
        return (ComponentSpec("usage", lambda: self._late.wrap("usage", build, USAGE_MODULE), stop_stage=20),)

    def close(self) -> None:
        """Let the thread end."""
        if self._worker is not None:
            self._worker.close()

    def _build(self) -> Component:
        from nodeagent.app.parts_side import Containers  # noqa: PLC0415 - see `late`
        from nodeagent.components.usage.component import Usage  # noqa: PLC0415 - likewise
        from nodeagent.edge.host.processes.process_places import HostProcessPlaces  # noqa: PLC0415 - likewise

        if self._live.now.gpus.simulated_profile is not None:
            # The processes of simulated GPUs are made up: their numbers must not be looked up on this host.
            return Usage(self._bus, self._clock)
        self._worker = self._worker or WorkerThread("places of processes with parts")
        containers = Containers(self._bus, is_made_up=False)
        return Usage(self._bus, self._clock, places=HostProcessPlaces(self._worker), list_containers=containers.list)
