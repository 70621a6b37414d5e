"""Facts of the node for answers to Allocate: control nodes, MIG capability nodes, IMEX channels.

Owns the driver's paths for these nodes.
Refuses to make nodes: `device_node_files` makes them.
"""

import re
import stat
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Final

from nodeagent.core.children.worker_thread import WorkerThread
from nodeagent.edge.host.driver.roots import DriverRoots
from nodeagent.edge.host.errors import FileTooLarge, FileUnreadable
from nodeagent.edge.host.files.atomic_file import read_bounded
from nodeagent.edge.host.host_worker import HostWorker
from nodeagent.model.nvidia import IMEX_CHANNELS, VENDOR
from nodeagent.model.plugin import HandoutFacts, MigCapability
from nodeagent.model.vendor import Vendor

READ_SECONDS: Final = 5.0
_MIG_MINORS: Final = "driver/nvidia-caps/mig-minors"
_ACCESS: Final = re.compile(r"gpu(\d{1,6})/gi(\d{1,6})(?:/ci(\d{1,6}))?/access (\d{1,9})")


class HandoutReader:
    """Reads the node in a thread of its own, because `/proc` and `/dev` can hang with the driver."""

    def __init__(self, *, root: Path = Path("/"), proc_dir: Path = Path("/proc"), vendor: Vendor = VENDOR) -> None:
        self._root, self._proc_dir, self._vendor = root, proc_dir, vendor
        self._worker = HostWorker(WorkerThread("handout"), proc_dir, READ_SECONDS)

    async def read(self, find_roots: Callable[[], DriverRoots], channels: Iterable[int]) -> HandoutFacts:
        """The node's facts now; `find_roots` is called in the thread, `channels` are the configured IMEX channels."""
        wanted = tuple(channels)
        return await self._worker.run(lambda: self._read(find_roots(), wanted), "reading the driver's nodes")

    def close(self) -> None:
        """End the thread."""
        self._worker.close()

    def _read(self, roots: DriverRoots, channels: Iterable[int]) -> HandoutFacts:
        places = (roots.dev, self._root)
        return HandoutFacts(
            vendor=self._vendor,
            control_nodes=tuple(
                node
                for node in self._vendor.control_nodes
                if any((place / node.lstrip("/")).exists() for place in places)
            ),
            dev_root=roots.dev_on_host,
            capabilities=read_capabilities(self._proc_dir / _MIG_MINORS),
            imex_channels=tuple(
                channel
                for channel in channels
                if any(
                    _is_character_device(place / IMEX_CHANNELS.lstrip("/") / f"channel{channel}") for place in places
                )
            ),
        )


def read_capabilities(path: Path) -> tuple[MigCapability, ...]:
    """The driver's numbers of capability nodes; empty where the driver has no such file."""
    try:
        content = read_bounded(path)
    except (FileUnreadable, FileTooLarge):
        return ()
    return tuple(parse_capabilities(content.decode(errors="replace")))


def parse_capabilities(text: str) -> Iterator[MigCapability]:
    """The lines about access to instances; other lines are about configuration and monitoring, or unknown."""
    for line in text.splitlines():
        match = _ACCESS.fullmatch(line.strip())
        if match:
            gpu, instance, compute, node = match.groups()
            yield MigCapability(
                gpu_minor=int(gpu),
                gpu_instance_id=int(instance),
                compute_instance_id=int(compute) if compute is not None else None,
                node=int(node),
            )


def _is_character_device(path: Path) -> bool:
    try:
        return stat.S_ISCHR(path.stat().st_mode)
    except OSError:
        # Missing or invisible: either way no container can have the node.
        return False
