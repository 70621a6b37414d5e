"""Builds the components that measure the use of fractions, and publish it as gpu-manager does."""

from collections.abc import Callable

from nodeagent import __version__
from nodeagent.app.endpoints import Listeners
from nodeagent.app.services import Services
from nodeagent.app.wiring.fractions import Containers
from nodeagent.components.exporter.component import Exporter
from nodeagent.components.usage.component import Usage
from nodeagent.components.usage.files_task import UsageFiles
from nodeagent.components.usage.service_task import ServiceAddress, UsageService
from nodeagent.components.usage.watchdog_task import Watchdog
from nodeagent.core.children.worker_thread import WorkerThread
from nodeagent.core.life.component import Component, ComponentSpec
from nodeagent.edge.host.processes.end_process import HostProcessEnding
from nodeagent.edge.host.processes.process_places import HostProcessPlaces
from nodeagent.edge.host.vgpu.fraction_folders import FRACTION_FOLDERS, SHARE_FOLDERS, HostFractionFolders
from nodeagent.model.ports import ProcessPlaces

FILES, SERVICE = "usage_files", "usage_service"


class UsageWiring:
    """Holds the threads for process look-ups and usage files, each made at first use."""

    def __init__(self, services: Services, made_up: ProcessPlaces | None) -> None:
        """`made_up` knows the pods of processes where pods are made up, too."""
        self._services, self._live = services, services.live
        self._made_up = made_up
        self._worker: WorkerThread | None = None
        self._files: WorkerThread | None = None

    def specs(
        self, listeners: Listeners, names: tuple[str, ...], find_exporter: Callable[[], Exporter]
    ) -> tuple[ComponentSpec, ...]:
        """The components, where fractions are possible; `names` are the names of this machine."""
        fractions, files = self._live.now.fractions, tuple[ComponentSpec, ...]()
        if self._made_up is None and (fractions.enabled or self._live.now.claims.enabled):
            files = (ComponentSpec(FILES, self._build_files, stop_stage=20),)
        if not self._live.now.gives_fractions:
            return files
        measuring = ComponentSpec("usage", self._build, stop_stage=20)
        if listeners.usage is None and fractions.usage_socket is None:
            return measuring, *files

        def build() -> Component:
            return self._build_service(listeners, names, find_exporter())

        return measuring, *files, ComponentSpec(SERVICE, build, stop_stage=40)

    def close(self) -> None:
        """Let the thread end."""
        for worker in (self._worker, self._files):
            if worker is not None:
                worker.close()

    def _build(self) -> Component:
        bus, conditions, clock, live = self._services
        if self._live.now.gpus.simulated_profile is not None:
            # The processes of simulated GPUs are made up: their numbers must not be looked up on this host.
            return Usage(bus, conditions, clock, places=self._made_up)
        self._worker = self._worker or WorkerThread("places of processes with parts")
        return Usage(
            bus,
            conditions,
            clock,
            places=HostProcessPlaces(self._worker),
            list_containers=Containers(bus).list,
            watchdog=Watchdog(bus, live, HostProcessEnding(self._worker)),
        )

    def _build_files(self) -> Component:
        worker = self._files = self._files or WorkerThread("files that containers write")
        state_dir = self._live.now.node.state_dir
        folders = [
            HostFractionFolders(state_dir / FRACTION_FOLDERS, worker),
            HostFractionFolders(state_dir / SHARE_FOLDERS, worker, of_claims=True),
        ]
        return UsageFiles(self._services.bus, self._services.conditions, folders)

    def _build_service(self, listeners: Listeners, names: tuple[str, ...], exporter: Exporter) -> Component:
        door = ServiceAddress(listeners.usage, names, listeners.usage_access) if listeners.usage is not None else None
        metrics = {"/metric": exporter.other_names.answer_gpu_manager, "/metrics": exporter.other_names.answer_hami}
        return UsageService(self._services.bus, self._live, version=__version__, metrics=metrics, door=door)
