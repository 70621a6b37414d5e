"""Builds the edge to the container runtime, for the agent and for commands without an agent."""

from pathlib import Path

from nodeagent.app.host_root import see_in_host_root
from nodeagent.config.schema import Settings
from nodeagent.core.children.worker_thread import WorkerThread
from nodeagent.edge.container_runtime.detect import RuntimeDetector
from nodeagent.edge.container_runtime.host_runtime import HostRuntime
from nodeagent.edge.host.files.host_program import locate_shared
from nodeagent.edge.host.machine.host_paths import HostPaths


def build_runtime_edge(settings: Settings) -> HostRuntime:
    """The container runtime of this node."""
    node = settings.node
    worker = WorkerThread("container runtime")
    return HostRuntime(
        node.state_dir, build_detector(settings), worker, host_root=node.host_root, proc_root=see_processes(settings)
    )


def build_detector(settings: Settings) -> RuntimeDetector:
    """The detector of this node's container runtimes."""
    return RuntimeDetector(
        host_root=settings.node.host_root,
        proc_root=see_processes(settings),
        socket=settings.runtime.socket,
        command=settings.runtime.kind,
    )


def find_shim(settings: Settings) -> str:
    """The runtime shim, if wanted and in place; otherwise empty."""
    if not settings.runtime.shim:
        return ""
    program, host = settings.shim.program, HostPaths(settings.node.host_root)
    return str(program) if locate_shared(program, host, settings.node.state_dir).exists() else ""


def see_processes(settings: Settings) -> Path:
    """Where the host's processes are seen: a host root mounted into a container includes the host's /proc."""
    node = settings.node
    own = Path("/proc")
    return see_in_host_root(settings, own) if node.proc_dir == own else node.proc_dir
