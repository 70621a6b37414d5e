"""Docker, which serves a kubelet by the adapter in front of it, and else stands beside the kubelet's runtime."""

from typing import Final

from nodeagent.model.runtime import RuntimeKind
from nodeagent.model.runtimes.containerd import NOTE
from nodeagent.model.runtimes.record import MAIN, RuntimePlace, RuntimeRecord

DOCKER: Final = RuntimeRecord(
    kind=RuntimeKind.DOCKER,
    setting="docker",
    title="Docker",
    program="dockerd",
    unit="docker.service",
    config_file="/etc/docker/daemon.json",
    config_flags=("--config-file",),
    places=(RuntimePlace("/var/run/docker.sock"),),
    first_with_cdi=(25, 0),
    first_with_groups=(28, 0),
    adapter="/cri-dockerd.sock",
    speaks_cri=False,
    notes=(f"/run/docker/containerd/daemon/{NOTE}",),
    check=("--validate", "--config-file", MAIN),
    check_flag="--validate",
)
