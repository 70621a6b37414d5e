"""Builds the component that writes what containers read about their GPUs."""

from pathlib import Path

from nodeagent.app.services import Services
from nodeagent.app.wiring.kubelet import KubeletWiring
from nodeagent.components.signals.receipts_task import ReceiptFolders, Receipts
from nodeagent.core.children.worker_thread import WorkerThread
from nodeagent.core.life.component import ComponentSpec
from nodeagent.edge.host.files.receipt_files import HostReceiptFiles
from nodeagent.rules.container_receipts import locate_receipts

STOP_STAGE = 10


class ReceiptsWiring:
    """The folders of the receipts, which outlive a restart of the component."""

    def __init__(self, services: Services, kubelet: KubeletWiring) -> None:
        bus, conditions, _, live = self._services = services
        self._kubelet, self._worker = kubelet, WorkerThread("receipts")
        files = HostReceiptFiles(Path(locate_receipts(live.now)), self._worker)
        self.folders = ReceiptFolders(bus, conditions, live, files)

    @staticmethod
    def is_used(services: Services) -> bool:
        """Whether containers get receipts, or some have theirs from former settings."""
        settings = services.live.now
        return settings.signals.receipts or Path(locate_receipts(settings)).is_dir()

    def specs(self) -> tuple[ComponentSpec, ...]:
        """The component; it waits for the journal and the GPUs itself, so that no fault is missed."""
        return (ComponentSpec(Receipts.name, self._build, stop_stage=STOP_STAGE),)

    def close(self) -> None:
        """Let the thread end."""
        self._worker.close()

    def _build(self) -> Receipts:
        return Receipts(self._services.bus, self._services.clock, self.folders, self._kubelet.journal.parts)
