"""Builds the component for MPS daemons."""

import os
from pathlib import Path

from nodeagent.app.host_root import find_driver_roots
from nodeagent.app.services import Services
from nodeagent.app.simulator import load_simulator
from nodeagent.components.mps.component import Mps
from nodeagent.config.schema import Settings
from nodeagent.core.children.worker_thread import WorkerThread
from nodeagent.core.life.handle import Handle
from nodeagent.edge.host.processes.process_places import HostProcessPlaces
from nodeagent.edge.mps.host import HostMps, MpsHostSettings
from nodeagent.model.ports import ChangeJournal, GpuAccess, GpuPartitioning, MpsHost


class MpsWiring:
    """Objects that outlive a restart of the component."""

    def __init__(self, services: Services, handle: Handle[Mps]) -> None:
        self._services, self._live, self._handle = services, services.live, handle
        settings = self._live.now
        self._workers = [WorkerThread("MPS files"), WorkerThread("MPS process places")]
        # GPUs of a simulation are made up, and so are their daemons, unless there is a program to be started.
        self._is_made_up = settings.gpus.simulated_profile is not None and settings.mps.program is None
        self._host = self._choose_host()
        self._places = None if self._is_made_up else HostProcessPlaces(self._workers[1])

    def build(self, partitioning: GpuPartitioning, journal: ChangeJournal) -> Mps:
        """The component."""
        return Mps(
            *self._services,
            self._host,
            GpuAccess(partitioning, self._places),
            journal,
            self._handle,
        )

    def close(self) -> None:
        """Let the threads end."""
        for worker in self._workers:
            worker.close()

    def _choose_host(self) -> MpsHost:
        if self._is_made_up:
            return load_simulator().build_mps()
        mps = self._live.now.mps
        settings = MpsHostSettings(
            find_root=lambda: find_driver_root(self._live.now),
            program=mps.program,
            memory_bytes=mps.shared_memory_mib << 20 if mps.shared_memory_mib is not None else read_memory() // 2,
            start_timeout_seconds=mps.start_timeout_seconds,
            answer_timeout_seconds=mps.answer_timeout_seconds,
        )
        return HostMps(settings, self._workers[0])


def read_memory() -> int:
    """The bytes of this machine's memory."""
    return os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")


def find_driver_root(settings: Settings) -> Path:
    """The driver's root as seen by this process now: a driver container may have come meanwhile."""
    return find_driver_roots(settings).driver
