"""Builds the components that measure the use of fractions, and publish it as gpu-manager does."""

from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING

from nodeagent import __version__
from nodeagent.app.endpoints import Listeners
from nodeagent.app.late import LateStart
from nodeagent.config.live import LiveSettings
from nodeagent.core.channels.bus import Bus
from nodeagent.core.children.worker_thread import WorkerThread
from nodeagent.core.clock import Clock
from nodeagent.core.conditions import Conditions
from nodeagent.core.life.component import Component, ComponentSpec
from nodeagent.model.ports import ProcessPlaces

if TYPE_CHECKING:
    from nodeagent.components.exporter.component import Exporter

USAGE_MODULE = "nodeagent.components.usage.component"
FILES = "usage_files"
FILES_MODULES = "nodeagent.components.usage.files_task", "nodeagent.edge.host.vgpu.part_folders"
SERVICE_MODULE = "nodeagent.components.usage.service_task"


class UsageSide:
    """Holds the threads for process look-ups and usage files, each made at first use."""

    def __init__(
        self,
        bus: Bus,
        conditions: Conditions,
        clock: Clock,
        live: LiveSettings,
        late: LateStart,
        made_up: ProcessPlaces | None,
    ) -> None:
        """`made_up` knows the pods of processes where pods are made up, too."""
        self._bus, self._conditions, self._clock, self._live, self._late = bus, conditions, clock, live, late
        self._made_up = made_up
        self._worker: WorkerThread | None = None
        self._files: WorkerThread | None = None

    def specs(
        self, listeners: Listeners, names: tuple[str, ...], find_exporter: Callable[[], "Exporter"]
    ) -> tuple[ComponentSpec, ...]:
        """The components, where fractions are possible; `names` are the names of this machine."""
        fractions, files = self._live.now.fractions, tuple[ComponentSpec, ...]()
        if self._made_up is None and (fractions.enabled or self._live.now.claims.enabled):
            build_files = partial(self._late.wrap, FILES, self._build_files, *FILES_MODULES)
            files = (ComponentSpec(FILES, build_files, stop_stage=20),)
        if not fractions.enabled:
            return files
        measuring = ComponentSpec("usage", lambda: self._late.wrap("usage", self._build, USAGE_MODULE), stop_stage=20)
        if listeners.usage is None and fractions.usage_socket is None:
            return measuring, *files

        def build() -> Component:
            return self._build_service(listeners, names, find_exporter())

        name = "usage_service"
        service = ComponentSpec(name, lambda: self._late.wrap(name, build, SERVICE_MODULE), stop_stage=40)
        return measuring, *files, service

    def close(self) -> None:
        """Let the thread end."""
        for worker in (self._worker, self._files):
            if worker is not None:
                worker.close()

    def _build(self) -> Component:
        from nodeagent.app.sides.parts import Containers  # noqa: PLC0415 - see `late`
        from nodeagent.components.usage.component import Usage  # noqa: PLC0415 - likewise
        from nodeagent.components.usage.watchdog_task import Watchdog  # noqa: PLC0415 - likewise
        from nodeagent.edge.host.processes.end_process import HostProcessEnding  # noqa: PLC0415 - likewise
        from nodeagent.edge.host.processes.process_places import HostProcessPlaces  # noqa: PLC0415 - likewise

        if self._live.now.gpus.simulated_profile is not None:
            # The processes of simulated GPUs are made up: their numbers must not be looked up on this host.
            return Usage(self._bus, self._conditions, self._clock, places=self._made_up)
        self._worker = self._worker or WorkerThread("places of processes with parts")
        containers = Containers(self._bus, is_made_up=False)
        return Usage(
            self._bus,
            self._conditions,
            self._clock,
            places=HostProcessPlaces(self._worker),
            list_containers=containers.list,
            watchdog=Watchdog(self._bus, self._live, HostProcessEnding(self._worker)),
        )

    def _build_files(self) -> Component:
        from nodeagent.components.usage.files_task import UsageFiles  # noqa: PLC0415 - see `late`
        from nodeagent.edge.host.vgpu.part_folders import (  # noqa: PLC0415 - likewise
            PART_FOLDERS,
            SHARE_FOLDERS,
            HostPartFolders,
        )

        worker = self._files = self._files or WorkerThread("files that containers write")
        state_dir = self._live.now.node.state_dir
        folders = [
            HostPartFolders(state_dir / PART_FOLDERS, worker),
            HostPartFolders(state_dir / SHARE_FOLDERS, worker, of_claims=True),
        ]
        return UsageFiles(self._bus, self._conditions, folders)

    def _build_service(self, listeners: Listeners, names: tuple[str, ...], exporter: "Exporter") -> Component:
        from nodeagent.components.usage.service_task import Door, UsageService  # noqa: PLC0415 - see `late`

        door = Door(listeners.usage, names, listeners.usage_access) if listeners.usage is not None else None
        metrics = {"/metric": exporter.other_names.answer_gpu_manager, "/metrics": exporter.other_names.answer_hami}
        return UsageService(self._bus, self._live, version=__version__, metrics=metrics, door=door)
