"""Users of GPUs: the processes with a GPU's device file open, by the file's number and not only by its name.

Owns the walk over /proc. Leaves out the agent and its children, which let a GPU go by the agent's own word.
Refuses to say that nobody has a GPU where no process is to be seen.
"""

import os
import stat
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Final

from nodeagent.core.children.worker_thread import WorkerThread
from nodeagent.edge.host.files.pseudo_file import list_names, read_raw_attribute
from nodeagent.edge.host.host_worker import HostWorker
from nodeagent.edge.host.processes.device_holders import parse_cgroup, read_command
from nodeagent.edge.host.processes.process_places import require_processes
from nodeagent.model.drains import DeviceUser

GPU_MAJOR: Final = 195
"""The kernel's number for NVIDIA's device files."""
GPU_MINORS: Final = range(248)
"""Those of GPUs; the numbers after are of files of no GPU, such as /dev/nvidiactl."""
_DEVICES: Final = "/dev/"
_PARENT: Final = 1
"""The field of /proc/PID/stat after the name and the state."""
_SCAN_SECONDS: Final = 10.0


class HostDeviceUsers:
    """Finds the processes in /proc."""

    def __init__(self, worker: WorkerThread, proc_root: Path = Path("/proc"), *, major: int = GPU_MAJOR) -> None:
        self._worker, self._proc_root = HostWorker(worker, proc_root, _SCAN_SECONDS), proc_root
        self.close = worker.close
        self._major = major

    async def read_users(self) -> tuple[DeviceUser, ...]:
        """The processes now, without the agent's own.

        Raises:
            HostStuck: /proc does not answer.
            FileUnreadable: no process is to be seen.
        """
        return await self._worker.run(self._read, "looking for open device files")

    def _read(self) -> tuple[DeviceUser, ...]:
        processes = require_processes(self._proc_root)
        parents = {int(process.name): _read_parent(process) for process in processes}
        # The agent may have another number in this /proc than in its own container.
        own = int((self._proc_root / "self").readlink().name)
        found = (self._read_user(process) for process in processes if not _descends(int(process.name), own, parents))
        return tuple(user for user in found if user is not None)

    def _read_user(self, process: Path) -> DeviceUser | None:
        minors = frozenset(os.minor(number) for number in _list_numbers(process / "fd") if self._is_gpu(number))
        if not minors:
            return None
        place = parse_cgroup(read_raw_attribute(process / "cgroup").decode("utf-8", "replace"))
        return DeviceUser(pid=int(process.name), command=read_command(process), minors=minors, pod_uid=place.pod_uid)

    def _is_gpu(self, number: int) -> bool:
        return os.major(number) == self._major and os.minor(number) in GPU_MINORS


def _descends(pid: int, ancestor: int, parents: Mapping[int, int]) -> bool:
    seen = set[int]()
    while pid != ancestor and pid in parents and pid not in seen:
        seen.add(pid)
        pid = parents[pid]
    return pid == ancestor


def _list_numbers(descriptors: Path) -> Iterator[int]:
    """The numbers of the open device files; only such are examined, as another file may keep its examiner waiting."""
    for name in list_names(descriptors):
        try:
            if not str((descriptors / name).readlink()).startswith(_DEVICES):
                continue
            status = (descriptors / name).stat()
        except OSError:
            continue
        if stat.S_ISCHR(status.st_mode):
            yield status.st_rdev


def _read_parent(process: Path) -> int:
    """The parent's number, 0 for a process that has ended; the name before it may have any characters."""
    fields = read_raw_attribute(process / "stat").rpartition(b")")[2].split()
    return int(fields[_PARENT]) if len(fields) > _PARENT else 0
