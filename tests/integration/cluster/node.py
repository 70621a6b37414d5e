"""Gives every scenario a node as new: all processes running, no pods, no GPU resources, labels, sockets or CDI files.

Looks first; a node that is already clean costs a few milliseconds. Otherwise the kubelet starts from empty directories
and registers a new Node object.
"""

import shutil
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from tests.integration.cluster.commands import PROCESSES
from tests.integration.cluster.control import Cluster
from tests.integration.cluster.layout import NODE_NAME, Layout
from tests.integration.cluster.pods import Pods

OURS = ("nvidia.com/", "devices.nodeagent.io/")
ALWAYS_THERE = frozenset({"kubelet.sock", "DEPRECATION"})


def reset_node(cluster: Cluster) -> tuple[str, ...]:
    """Make the node as new; return what was wrong with it."""
    start_missing(cluster)
    for manifest in cluster.layout.static_pods.iterdir():
        manifest.unlink()  # the kubelet would start its pod again
    Pods(cluster).delete_all()
    layout = cluster.layout
    stains = (*find_stains(cluster.api.read_node()), *find_strange_files(watched_directories(layout)))
    if stains:
        renew_node(cluster)
    for stale in layout.agent.iterdir():
        shutil.rmtree(stale) if stale.is_dir() else stale.unlink()
    return stains


def start_missing(cluster: Cluster) -> None:
    """Start what a scenario has stopped."""
    missing = [name for name in PROCESSES if not cluster.is_running(name)]
    for name in missing:
        if name != "apiserver":
            cluster.start(name)
    if "apiserver" in missing:
        cluster.end_outage()
    cluster.wait_containerd()
    cluster.wait_api()
    cluster.wait_node()


def renew_node(cluster: Cluster) -> None:
    """Let the kubelet start anew: empty plugin directories, and a Node object made from nothing."""
    cluster.stop("kubelet")
    for directory in watched_directories(cluster.layout):
        # Who leaves the node takes an empty directory along.
        directory.mkdir(exist_ok=True)
        for path in directory.iterdir():
            shutil.rmtree(path) if path.is_dir() else path.unlink()
    cluster.api.delete(f"/api/v1/nodes/{NODE_NAME}")
    cluster.start("kubelet")
    cluster.wait_node()


def watched_directories(layout: Layout) -> tuple[Path, ...]:
    """Where agents leave files that change what the kubelet or containerd does."""
    registry = layout.kubelet / "plugins_registry"
    return (layout.device_plugins, *((registry,) if registry.is_dir() else ()), *layout.cdi_dirs)


def find_stains(node: Mapping[str, Any]) -> tuple[str, ...]:
    """What an agent has left on the Node object."""
    metadata, status = node["metadata"], node["status"]
    keys = (
        *(f"label {key}" for key in metadata.get("labels", {}) if key.startswith(OURS)),
        *(f"annotation {key}" for key in metadata.get("annotations", {}) if key.startswith(OURS)),
        *(f"resource {key}" for key in status.get("capacity", {}) if key.startswith(OURS)),
        *(f"condition {each['type']}" for each in status.get("conditions", []) if each["type"].startswith(OURS)),
        *(f"taint {each['key']}" for each in node["spec"].get("taints", [])),
    )
    return tuple(keys)


def find_strange_files(directories: Iterable[Path]) -> tuple[str, ...]:
    """Files that are not there on a new node. The kubelet's checkpoint is one: it remembers devices."""
    there = [folder for folder in directories if folder.is_dir()]
    return tuple(str(path) for folder in there for path in sorted(folder.iterdir()) if path.name not in ALWAYS_THERE)
