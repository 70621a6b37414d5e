"""Kills a process of a pod, if the process still belongs to the pod.

Owns the order: the process is first held by a descriptor and then examined, so that another process with the same
number is never killed.
"""

import os
import signal
from pathlib import Path

from nodeagent.core.children.worker_thread import WorkerThread
from nodeagent.core.log.audit import noting
from nodeagent.edge.host.errors import ProcessNotEnded
from nodeagent.edge.host.files.pseudo_file import read_raw_attribute
from nodeagent.edge.host.host_worker import HostWorker
from nodeagent.edge.host.processes.device_holders import parse_cgroup

_TIMEOUT_SECONDS = 2.0


class HostProcessEnding:
    """The port `ProcessEnding` over pidfd."""

    def __init__(self, worker: WorkerThread, proc_root: Path = Path("/proc")) -> None:
        self._worker, self._proc_root = HostWorker(worker, proc_root, _TIMEOUT_SECONDS), proc_root

    async def end(self, pid: int, pod_uid: str) -> bool:
        """Send SIGKILL; False for a process that has ended, or belongs to another pod."""
        return await self._worker.run(lambda: self._end(pid, pod_uid), "ending a process")

    def _end(self, pid: int, pod_uid: str) -> bool:
        try:
            descriptor = os.pidfd_open(pid)
        except ProcessLookupError:
            return False
        except OSError as error:
            raise ProcessNotEnded(pid, error) from error
        try:
            group = read_raw_attribute(self._proc_root / str(pid) / "cgroup").decode("utf-8", "replace")
            if not pod_uid or parse_cgroup(group).pod_uid != pod_uid:
                return False
            with noting("process", str(pid), "end it: it kept more of a GPU's memory than its part", f"pod {pod_uid}"):
                signal.pidfd_send_signal(descriptor, signal.SIGKILL)
        except ProcessLookupError:
            return False
        except OSError as error:
            raise ProcessNotEnded(pid, error) from error
        finally:
            os.close(descriptor)
        return True
