"""Where everything of one cluster lies, and the few facts about it that outlive the process which started it.

Owns every path and port, so that the renderers stay pure and `down` knows what to look for.
Refuses scratch directories too long for unix sockets: the kernel allows 107 bytes, containerd keeps 65 for shim names.
"""

import dataclasses
import hashlib
import itertools
import json
import os
import secrets
import socket
import tempfile
from pathlib import Path
from typing import Self

from tests.integration.cluster.errors import PathTooLong
from tests.integration.cluster.versions import VARIABLE, Versions

CHECKOUT = Path(__file__).resolve().parents[3]
ROOT_VARIABLE = "NODEAGENT_CLUSTER_ROOT"
LANES_BESIDE = ("2", "old")
"""What the places of clusters that run beside the first one are called (`lanes.py`)."""
NODE_NAME = "gpu-node"
SERVICE_RANGE = "10.0.0.0/24"
SERVICE_ADDRESS = "10.0.0.1"  # of the API server, in the eyes of a pod: the first of the range
LONGEST_ROOT = 40  # containerd refuses a shim socket directory of more than 42 bytes; ours is "<root>/s"
EPHEMERAL_PORTS_FROM = 32_768
KUBELET_ROOT = Path("/var/lib/kubelet")  # in the eyes of the kubelet: see `Layout.mounts`


@dataclasses.dataclass(frozen=True, slots=True)
class Ports:
    """The loopback ports of one cluster, chosen when it comes up."""

    etcd_client: int
    etcd_peer: int
    api: int
    kubelet: int


@dataclasses.dataclass(frozen=True, slots=True)
class Layout:
    """All paths of one cluster below its scratch directory."""

    root: Path

    def __post_init__(self) -> None:
        if len(os.fsencode(self.root)) > LONGEST_ROOT:
            raise PathTooLong(self.root, LONGEST_ROOT)

    @classmethod
    def of_checkout(cls, checkout: Path = CHECKOUT, versions: str | None = None) -> Self:
        """The layout this checkout uses unless told otherwise: neither checkouts nor versions share a cluster."""
        chosen = os.environ.get(ROOT_VARIABLE)
        chosen_versions = os.environ.get(VARIABLE, "") if versions is None else versions
        mark = hashlib.sha256(os.fsencode(checkout) + chosen_versions.encode()).hexdigest()[:8]
        return cls(Path(chosen) if chosen else Path(tempfile.gettempdir()) / f"nodeagent-e2e-{mark}")

    def beside(self, name: str) -> "Layout":
        """The layout of another cluster of the same checkout."""
        return Layout(self.root.with_name(f"{self.root.name}-{name}"))

    @property
    def lock_file(self) -> Path:
        """Beside the scratch directory, because `down` removes that one."""
        return self.root.with_name(self.root.name + ".lock")

    @property
    def state_file(self) -> Path:
        return self.root / "state.json"

    @property
    def logs(self) -> Path:
        return self.root / "log"

    @property
    def records(self) -> Path:
        """One file per process we started."""
        return self.root / "pids"

    @property
    def certs(self) -> Path:
        return self.root / "certs"

    @property
    def programs(self) -> Path:
        """A link to each program of the cluster, in the version that was asked for."""
        return self.root / "bin"

    @property
    def etcd_data(self) -> Path:
        return self.root / "etcd"

    @property
    def containerd(self) -> Path:
        return self.root / "containerd"

    @property
    def containerd_socket(self) -> Path:
        return self.root / "containerd.sock"

    @property
    def shim_sockets(self) -> Path:
        return self.root / "s"

    @property
    def cdi_dirs(self) -> tuple[Path, Path]:
        """Static and generated CDI specifications, as /etc/cdi and /var/run/cdi on a node."""
        return (self.root / "cdi" / "etc", self.run / "cdi")

    @property
    def run(self) -> Path:
        """What the cluster sees as /run."""
        return self.root / "run"

    @property
    def cni(self) -> Path:
        """The network plugin, its configuration, and a record for each pod that it serves."""
        return self.root / "cni"

    @property
    def mounts(self) -> dict[Path, Path]:
        """What lies where in the eyes of the cluster's processes, so that nothing of them reaches the machine's own.

        The kubelet's device plugin directory cannot be moved, nor can the log links it makes, nor where a pod's mounts
        lead; and the API server must find the node's name on loopback.
        """
        return {
            self.root / "lib": Path("/var/lib"),
            self.run: Path("/run"),
            self.root / "varlog": Path("/var/log"),
            self.root / "hosts": Path("/etc/hosts"),
        }

    @property
    def mounts_over_what_is_there(self) -> dict[Path, Path]:
        """What hides a directory that a machine need not have; nothing is mounted where it has none."""
        return {self.cdi_dirs[0]: Path("/etc/cdi")}

    @property
    def kubelet(self) -> Path:
        """What the kubelet sees as /var/lib/kubelet."""
        return self.root / "lib" / "kubelet"

    @property
    def device_plugins(self) -> Path:
        return self.kubelet / "device-plugins"

    @property
    def pod_resources_socket(self) -> Path:
        return self.kubelet / "pod-resources" / "kubelet.sock"

    @property
    def pods_api_socket(self) -> Path:
        return self.kubelet / "pods-api" / "pods-api.sock"

    @property
    def static_pods(self) -> Path:
        """Manifests that the kubelet starts by itself."""
        return self.root / "static-pods"

    @property
    def image(self) -> Path:
        return self.root / "image.tar"

    @property
    def agent(self) -> Path:
        """Everything of the agent under test: its configuration, state and sockets."""
        return self.root / "agent"

    @property
    def cgroup_root(self) -> str:
        """The one cgroup below which the kubelet creates its own."""
        return "/" + self.root.name

    def kubeconfig(self, user: str) -> Path:
        return self.root / f"{user}.kubeconfig"

    def config(self, program: str) -> Path:
        return self.root / {"containerd": "containerd.toml", "kubelet": "kubelet.yaml"}[program]

    def log(self, name: str) -> Path:
        return self.logs / f"{name}.log"

    def directories(self) -> tuple[Path, ...]:
        """All directories that must exist before the first process starts."""
        return (
            self.logs,
            self.records,
            self.programs,
            self.certs,
            self.containerd,
            self.shim_sockets,
            *self.cdi_dirs,
            self.device_plugins,
            self.root / "varlog",
            self.agent,
            self.cni,
            self.static_pods,
        )


@dataclasses.dataclass(frozen=True, slots=True)
class State:
    """What is remembered between `up` and `down`: ports, versions, and kernel settings that the kubelet changed."""

    ports: Ports
    versions: Versions
    sysctls: dict[str, str]

    def write(self, layout: Layout) -> None:
        layout.state_file.write_text(json.dumps({**dataclasses.asdict(self), "versions": str(self.versions)}, indent=1))

    @classmethod
    def read(cls, layout: Layout) -> Self | None:
        """The state of the cluster in `layout`, or None where there is none (or its `up` was cut off)."""
        try:
            document = json.loads(layout.state_file.read_text())
        except (FileNotFoundError, json.JSONDecodeError):
            return None
        return cls(Ports(**document["ports"]), Versions.parse(document["versions"]), document["sysctls"])


def choose_ports() -> Ports:
    """Free ports for a new cluster."""
    return Ports(*choose_free_ports(len(dataclasses.fields(Ports))))


def choose_free_ports(count: int) -> tuple[int, ...]:
    """Ports nobody listens on now, below the range the kernel hands to outgoing connections.

    A port of that range could be taken by anybody's connection while the API server is down for a test.
    """
    candidates = range(secrets.choice(range(20_000, 30_000)), EPHEMERAL_PORTS_FROM)
    return tuple(itertools.islice(filter(is_free_port, candidates), count))


def is_free_port(port: int) -> bool:
    """Whether a server could listen on this loopback port."""
    with socket.socket() as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind(("127.0.0.1", port))
        except OSError:
            return False
        return True
