"""Where the inventory of a test remembers its GPUs."""

from pathlib import Path

from nodeagent.components.inventory.gpu_store import GPU_STORE_VERSION
from nodeagent.edge.host.files.sealed_file import SealedFile
from nodeagent.edge.host.files.sealed_store import SealedStore


def open_gpu_store(state_dir: Path) -> SealedStore:
    """The real store, in this directory."""
    return SealedStore(SealedFile(state_dir / "gpus.json", "nodeagent-gpus", GPU_STORE_VERSION))
