"""What the agent's pod costs on the real cluster: seconds until its devices are offered, and memory."""

import dataclasses
import json
import re
import statistics
import sys
from datetime import UTC, datetime
from pathlib import Path

from tests.integration.cluster.api import Json
from tests.integration.cluster.cgroups import find_folders, read_hierarchies
from tests.integration.cluster.control import Cluster
from tests.integration.cluster.layout import CHECKOUT

RESULT = CHECKOUT / "results" / "daemonset.json"
_OFFERED = re.compile(r'^I(\d{4} [\d:.]+) .*"Processed device updates for resource".* healthyCount=[1-9]', re.MULTILINE)


@dataclasses.dataclass(frozen=True, slots=True)
class Figures:
    """Memory of one pod's container."""

    pss_mib: float
    """Of the agent and its GPU worker, shared pages divided among those that share them."""
    rss_mib: float
    cgroup_mib: float
    """What the kernel charges to the container, its page cache without what is inactive."""


def read_seconds_to_devices(cluster: Cluster) -> float:
    """From the start of the newest container to the kubelet's word that it has healthy devices."""
    (container,) = json.loads(cluster.run("crictl", "ps", "--name", "^nodeagent$", "--output", "json"))["containers"]
    status = json.loads(cluster.run("crictl", "inspect", container["id"]))["status"]
    started = datetime.fromisoformat(re.sub(r"(\.\d{6})\d+", r"\1", status["startedAt"]))
    log = cluster.layout.log("kubelet").read_text(errors="replace")
    year = datetime.now(UTC).year
    times = [datetime.strptime(f"{year}{found[1]}+0000", "%Y%m%d %H:%M:%S.%f%z") for found in _OFFERED.finditer(log)]
    return min(each for each in times if each > started).timestamp() - started.timestamp()


def read_figures(cluster: Cluster, pod: Json) -> Figures:
    """Memory of the pod's container now."""
    container = pod["status"]["containerStatuses"][0]["containerID"].removeprefix("containerd://")
    folders = [
        folder
        for folder in find_folders(cluster.layout.cgroup_root, read_hierarchies())
        if container in folder.name and (folder / "cgroup.procs").exists()
    ]
    pids = {int(line) for folder in folders for line in (folder / "cgroup.procs").read_text().split()}
    return Figures(
        pss_mib=sum(_read_kib(pid, "Pss") for pid in pids) / 1024,
        rss_mib=sum(_read_kib(pid, "Rss") for pid in pids) / 1024,
        cgroup_mib=max((_read_charged(folder) for folder in folders), default=0) / 2**20,
    )


def _read_kib(pid: int, kind: str) -> int:
    found = re.search(rf"^{kind}: +(\d+) kB", Path(f"/proc/{pid}/smaps_rollup").read_text(), re.MULTILINE)
    return int(found[1]) if found else 0


def _read_charged(folder: Path) -> int:
    """As the kubelet reckons a working set."""
    for usage, inactive in (("memory.usage_in_bytes", "total_inactive_file"), ("memory.current", "inactive_file")):
        if (folder / usage).exists():
            found = re.search(rf"^{inactive} (\d+)$", (folder / "memory.stat").read_text(), re.MULTILINE)
            return int((folder / usage).read_text()) - (int(found[1]) if found else 0)
    return 0


def report(cluster: Cluster, seconds: list[float], figures: Figures, request: str) -> None:
    document = {
        "container_start_to_devices_seconds": {
            "p50": round(statistics.median(seconds), 2),
            "max": round(max(seconds), 2),
            "runs": len(seconds),
        },
        "memory_mib": {name: round(value, 1) for name, value in dataclasses.asdict(figures).items()},
        "memory_request": request,
        "load": Path("/proc/loadavg").read_text().split()[0],
    }
    RESULT.parent.mkdir(exist_ok=True)
    RESULT.write_text(json.dumps(document, indent=1) + "\n")
    sys.stderr.write(f"\n{json.dumps(document)}\n")
