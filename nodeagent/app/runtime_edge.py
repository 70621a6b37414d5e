"""Builds the edge to the container runtime, for the agent and for commands that work without one."""

from nodeagent.config.schema import Settings
from nodeagent.edge.container_runtime.detect import RuntimeDetector
from nodeagent.edge.container_runtime.host_runtime import HostRuntime
from nodeagent.kernel.worker_thread import WorkerThread


def build_runtime_edge(settings: Settings) -> HostRuntime:
    """The container runtime of this node."""
    detector = RuntimeDetector(proc_root=settings.node.proc_dir, socket=settings.runtime.socket)
    worker = WorkerThread("container runtime")
    return HostRuntime(settings.node.state_dir, detector, worker, proc_root=settings.node.proc_dir)
