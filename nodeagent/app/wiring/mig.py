"""Builds the component that cuts GPUs, only if `mig.manage` is on."""

from collections.abc import Callable
from pathlib import Path

from nodeagent.app.services import Services
from nodeagent.app.wiring.mig_paused_clients import STORE, MigCluster
from nodeagent.components.mig.component import ClusterAccess, Mig, MigFiles, MigHandles
from nodeagent.config.errors import Problem
from nodeagent.config.files import read_config_file
from nodeagent.config.live import LiveSettings
from nodeagent.config.tree import Origin
from nodeagent.core.children.worker_thread import WorkerThread
from nodeagent.core.errors import CoreError
from nodeagent.core.life.handle import Handle
from nodeagent.core.life.orders import OrderHandlers
from nodeagent.edge.host.files.sealed_store import SealedStore
from nodeagent.edge.host.processes.process_places import HostProcessPlaces
from nodeagent.model.ports import ChangeJournal, GpuAccess, GpuPartitioning, PartitionMaking
from nodeagent.rules.mig.layouts import LayoutsRead, read_layouts

READ_SECONDS = 5.0


class LayoutsFile:
    """The file of layouts that the settings name, read anew at each use: a mounted ConfigMap changes without notice."""

    def __init__(self, live: LiveSettings) -> None:
        self._live, self._worker = live, WorkerThread("MIG layouts")

    async def read(self) -> LayoutsRead:
        """The layouts of the file, and its problems; no layouts without a file."""
        path = self._live.now.mig.layouts_file
        if path is None:
            return LayoutsRead()
        try:
            return await self._worker.run(lambda: _read(path), timeout_seconds=READ_SECONDS, what=f"read {path}")
        except CoreError as error:
            return LayoutsRead(problems=(Problem(Origin("file", str(path)), "", str(error)),))

    def close(self) -> None:
        """Let the reading thread end."""
        self._worker.close()


def _read(path: Path) -> LayoutsRead:
    texts, problems = read_config_file(path)
    return read_layouts(texts[0].text, str(path)) if texts else LayoutsRead(problems=problems)


class MigWiring:
    """Objects that outlive a restart of the component."""

    def __init__(self, services: Services, orders: OrderHandlers) -> None:
        self._services, self._orders = services, orders
        self._file = LayoutsFile(services.live)
        # The processes of simulated GPUs are made up: their numbers must not be looked up on this host.
        is_simulated = services.live.now.gpus.simulated_profile is not None
        self._worker = WorkerThread("MIG process places")
        self._places = None if is_simulated else HostProcessPlaces(self._worker)

    def build(
        self,
        partitioning: GpuPartitioning,
        journal: ChangeJournal,
        partitions: Handle[PartitionMaking],
        open_store: Callable[[str, str, int], SealedStore],
        cluster: MigCluster | None,
    ) -> Mig:
        """The component; `cluster` is where the API server is asked at all."""
        return Mig(
            *self._services,
            GpuAccess(partitioning, self._places),
            MigFiles(journal, open_store(*STORE), self._file.read),
            MigHandles(self._orders, partitions),
            ClusterAccess(cluster, cluster, has_labels=cluster is not None),
        )

    def close(self) -> None:
        """Let the threads end."""
        self._file.close()
        self._worker.close()
