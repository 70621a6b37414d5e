"""Pods of processes, by control group.

Owns the reading of /proc and remembers the answers: a process does not move between pods, and most live long.
Refuses to guess: an invisible process, as without the host's PID namespace, is left out.
"""

from collections.abc import Mapping, Sequence
from pathlib import Path

from nodeagent.core.children.worker_thread import WorkerThread
from nodeagent.core.errors import WorkerError
from nodeagent.core.log.lines import get_logger
from nodeagent.edge.host.errors import FileUnreadable
from nodeagent.edge.host.files.pseudo_file import list_processes, read_raw_attribute
from nodeagent.edge.host.processes.device_holders import parse_cgroup
from nodeagent.model.ports import ProcessPlace


def require_processes(proc_root: Path) -> tuple[Path, ...]:
    """The directories of all processes.

    Raises:
        FileUnreadable: /proc shows no process at all.
    """
    processes = list_processes(proc_root)
    if not processes:
        raise FileUnreadable(proc_root, FileNotFoundError(2, "no process is to be seen there"))
    return processes


def find_pods(proc_root: Path) -> frozenset[str]:
    """The uids of all pods with a process; between two containers the pod's sandbox remains as a process."""
    cgroups = (each / "cgroup" for each in require_processes(proc_root))
    texts = (read_raw_attribute(each).decode("utf-8", "replace") for each in cgroups)
    return frozenset(uid for uid in (parse_cgroup(text).pod_uid for text in texts) if uid)


class HostProcessPlaces:
    """The port `ProcessPlaces` over /proc."""

    def __init__(self, worker: WorkerThread, proc_root: Path = Path("/proc"), *, timeout_seconds: float = 2.0) -> None:
        self._worker, self._proc_root, self._timeout_seconds = worker, proc_root, timeout_seconds
        self._known: dict[int, ProcessPlace] = {}
        self._log = get_logger(component="process places")

    async def read_places(self, pids: Sequence[int]) -> Mapping[int, ProcessPlace]:
        """Reads new pids only; a pid not asked for is forgotten, as the number may come back as another process."""
        wanted = frozenset(pids)
        kept = {pid: place for pid, place in self._known.items() if pid in wanted}
        fresh = tuple(wanted - kept.keys())
        if fresh:
            try:
                kept |= await self._worker.run(
                    lambda: self._read(fresh), timeout_seconds=self._timeout_seconds, what="reading control groups"
                )
            except WorkerError as error:
                self._log.warning("process_places_unknown", reason=str(error), processes=len(fresh))
        self._known = kept
        return kept

    def _read(self, pids: Sequence[int]) -> dict[int, ProcessPlace]:
        found = {}
        for pid in pids:
            text = read_raw_attribute(self._proc_root / str(pid) / "cgroup").decode("utf-8", "replace")
            if text:
                place = parse_cgroup(text)
                name = "" if place.pod_uid else self._read_name(pid)
                found[pid] = ProcessPlace(pod_uid=place.pod_uid, container_id=place.container_id, name=name)
        return found

    def _read_name(self, pid: int) -> str:
        return read_raw_attribute(self._proc_root / str(pid) / "comm").decode("utf-8", "replace").strip()
