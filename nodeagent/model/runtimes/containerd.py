"""containerd, alone and in the distributions that bundle it."""

from collections.abc import Mapping
from pathlib import PurePosixPath
from typing import Final

from nodeagent.model.runtime import RuntimeFlavour, RuntimeKind
from nodeagent.model.runtimes.record import MAIN, FurtherFiles, RuntimePlace, RuntimeRecord

_TEMPLATE: Final = "containerd-template.toml"
_SNAP: Final = "/snap/microk8s/current"
_RANCHER: Final = "/run/k3s/containerd/containerd.sock"

_STATES: Final = (
    "/run/containerd",
    "/run/k3s/containerd",
    "/run/k0s/containerd",
    "/var/snap/microk8s/common/run/containerd",
)
NOTE: Final = "io.containerd.runtime.v2.task/*/*/runtime"
"""Below the directory of containerd's state; a note for each container."""

CONTAINERD: Final = RuntimeRecord(
    kind=RuntimeKind.CONTAINERD,
    setting="containerd",
    title="containerd",
    program="containerd",
    unit="containerd.service",
    config_file="/etc/containerd/config.toml",
    config_flags=("-c", "--config"),
    places=(
        RuntimePlace("/run/containerd/containerd.sock"),
        RuntimePlace(
            _RANCHER,
            RuntimeFlavour.K3S,
            config_file="/var/lib/rancher/k3s/agent/etc/containerd/config.toml",
            restart=("systemctl", "try-restart", "k3s.service", "k3s-agent.service"),
        ),
        RuntimePlace(
            _RANCHER,
            RuntimeFlavour.RKE2,
            config_file="/var/lib/rancher/rke2/agent/etc/containerd/config.toml",
            restart=("systemctl", "try-restart", "rke2-server.service", "rke2-agent.service"),
            mark="/var/lib/rancher/rke2",
        ),
        RuntimePlace(
            "/var/snap/microk8s/common/run/containerd.sock",
            RuntimeFlavour.MICROK8S,
            config_file=f"/var/snap/microk8s/current/args/{_TEMPLATE}",
            restart=("snap", "restart", "microk8s.daemon-containerd"),
        ),
        RuntimePlace(
            "/run/k0s/containerd.sock",
            RuntimeFlavour.K0S,
            config_file="/etc/k0s/containerd.toml",
            restart=("systemctl", "try-restart", "k0sworker.service", "k0scontroller.service"),
        ),
    ),
    first_with_cdi=(1, 7),
    first_with_groups=(2, 0),
    further_files=FurtherFiles.IMPORTS,
    notes=tuple(f"{directory}/{NOTE}" for directory in _STATES),
    check=("--config", MAIN, "config", "dump"),
)


def list_snap_places(config_file: str) -> Mapping[bytes, bytes]:
    """The variables for directories in MicroK8s' template, with the values of its `run-containerd-with-args`."""
    path = PurePosixPath(config_file)
    if path.name != _TEMPLATE:
        return {}
    return {b"${SNAP_DATA}": str(path.parent.parent).encode(), b"${SNAP}": _SNAP.encode()}
