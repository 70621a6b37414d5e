"""Who looks for runtimes on a made-up host."""

from pathlib import Path

from nodeagent.edge.container_runtime.detect import RuntimeDetector


def make_detector(host: Path, socket: Path | None = None) -> RuntimeDetector:
    proc = host / "proc"
    proc.mkdir(exist_ok=True)
    return RuntimeDetector(host_root=host, proc_root=proc, socket=socket, timeout_seconds=5.0)
