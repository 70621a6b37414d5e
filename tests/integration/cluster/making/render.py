"""Every configuration file of the cluster, as text. Pure: paths and ports in, text out.

The reasons stand beside the keys: most of them are there for one machine without systemd, registry or network plugin.
"""

import json
from collections.abc import Mapping
from typing import Any

import yaml

from tests.integration.cluster.layout import NODE_NAME, SERVICE_ADDRESS, Layout, Ports
from tests.integration.cluster.versions import Versions

PAUSE_IMAGE = "localhost/pause:1"
BUSYBOX_IMAGE = "localhost/busybox:1"
POD_NETWORK = "pod-network"
POD_PORT = 9400  # the one on which pods are asked for something: the agent's
SERVICE_ACCOUNT_ISSUER = "https://kubernetes.default.svc"

# The users of the token file: name and groups. The controller manager acts with all rights here, because creating one
# service account for each of its controllers would lengthen every start.
USERS: Mapping[str, tuple[str, str]] = {
    "admin": ("admin", "system:masters"),
    "controllers": ("controllers", "system:masters"),
    "scheduler": ("system:kube-scheduler", ""),
    "node": (f"system:node:{NODE_NAME}", "system:nodes"),
    "stranger": ("stranger", ""),  # known, and without any right
}


def render_tokens(tokens: Mapping[str, str]) -> str:
    """The API server's static token file for the users above."""
    rows = ((tokens[who], name, who, f'"{groups}"') for who, (name, groups) in USERS.items())
    return "".join(",".join(row) + "\n" for row in rows)


def render_kubeconfig(layout: Layout, ports: Ports, token: str) -> str:
    """How one user reaches the API server; the server's certificate is verified."""
    return _yaml(
        {
            "apiVersion": "v1",
            "kind": "Config",
            "clusters": [
                {
                    "name": "test",
                    "cluster": {
                        "server": f"https://127.0.0.1:{ports.api}",
                        "certificate-authority": str(layout.certs / "ca.crt"),
                    },
                }
            ],
            "users": [{"name": "user", "user": {"token": token}}],
            "contexts": [{"name": "test", "context": {"cluster": "test", "user": "user"}}],
            "current-context": "test",
        }
    )


def render_hosts() -> str:
    """What the cluster sees as /etc/hosts: the API server finds the kubelet by the node's name, on loopback."""
    return f"127.0.0.1 localhost {NODE_NAME}\n"


def render_cni(layout: Layout, ports: Ports) -> str:
    """How pods that do not use the host's network are connected: see `pod_network.py`."""
    plugin = {
        "type": POD_NETWORK,
        "directory": str(layout.cni),
        "api": ports.api,
        "service": [SERVICE_ADDRESS, 443],
        "ports": [POD_PORT],
    }
    return json.dumps({"cniVersion": "1.0.0", "name": "test", "plugins": [plugin]})


def render_containerd(layout: Layout, versions: Versions) -> str:
    """Render containerd with CDI, everything it writes below the scratch directory."""
    cdi = ", ".join(f'"{each}"' for each in layout.cdi_dirs)
    shared = f"""\
root = "{layout.containerd}/root"
state = "{layout.containerd}/state"
imports = []
[grpc]
  address = "{layout.containerd_socket}"
[plugins.'io.containerd.internal.v1.opt']
  path = "{layout.containerd}/opt"
[plugins.'io.containerd.nri.v1.nri']
  disable = true  # its socket would lie in /run
"""
    containers = f"""\
  enable_cdi = true
  cdi_spec_dirs = [{cdi}]
  restrict_oom_score_adj = true  # sandboxes ask for -998, which a restricted machine forbids
"""
    if versions.containerd.startswith("1."):
        return f"""\
version = 2
{shared}[plugins.'io.containerd.grpc.v1.cri']
  sandbox_image = "{PAUSE_IMAGE}"
{containers}[plugins.'io.containerd.grpc.v1.cri'.cni]
  conf_dir = "{layout.cni}"
  bin_dir = "{layout.cni}"
{_render_runc(layout, "grpc.v1.cri")}"""
    return f"""\
version = 3
{shared}[plugins.'io.containerd.shim.v1.manager']
  socket_dir = "{layout.shim_sockets}"
[plugins.'io.containerd.cri.v1.images'.pinned_images]
  sandbox = "{PAUSE_IMAGE}"
[plugins.'io.containerd.cri.v1.runtime']
{containers}[plugins.'io.containerd.cri.v1.runtime'.cni]
  conf_dir = "{layout.cni}"
  bin_dirs = ["{layout.cni}"]
  use_internal_loopback = true
{_render_runc(layout, "cri.v1.runtime")}"""


def _render_runc(layout: Layout, plugin: str) -> str:
    return f"""\
[plugins.'io.containerd.{plugin}'.containerd.runtimes.runc]
  runtime_type = "io.containerd.runc.v2"
[plugins.'io.containerd.{plugin}'.containerd.runtimes.runc.options]
  SystemdCgroup = false
  Root = "{layout.containerd}/runc"
"""


def render_kubelet(layout: Layout, ports: Ports) -> str:
    """The kubelet: no systemd, no eviction, quick status, its server on loopback behind a certificate."""
    return _yaml(
        {
            "apiVersion": "kubelet.config.k8s.io/v1beta1",
            "kind": "KubeletConfiguration",
            "address": "127.0.0.1",
            "port": ports.kubelet,
            "readOnlyPort": 0,
            "healthzPort": 0,
            "tlsCertFile": str(layout.certs / "kubelet.crt"),
            "tlsPrivateKeyFile": str(layout.certs / "kubelet.key"),
            "authentication": {
                "anonymous": {"enabled": False},
                "webhook": {"enabled": False},
                "x509": {"clientCAFile": str(layout.certs / "ca.crt")},
            },
            "authorization": {"mode": "AlwaysAllow"},  # of those who hold a certificate: only the API server does
            "containerRuntimeEndpoint": f"unix://{layout.containerd_socket}",
            "cgroupDriver": "cgroupfs",
            "cgroupRoot": layout.cgroup_root,
            "failCgroupV1": False,
            "failSwapOn": False,
            "enforceNodeAllocatable": [],  # no limit on the pods' common cgroup
            "evictionHard": {},  # a full disk of the test machine must not evict the test
            "imageGCHighThresholdPercent": 100,  # nor delete the image that no registry has
            "localStorageCapacityIsolation": False,
            "maxPods": 250,  # of two hundred none may wait for that
            "makeIPTablesUtilChains": False,
            "resolvConf": "",
            "staticPodPath": str(layout.static_pods),
            "fileCheckFrequency": "1s",  # it also watches the directory
            "nodeStatusUpdateFrequency": "500ms",  # no pod is scheduled before the node shows what its plugin offers
            "nodeStatusReportFrequency": "10s",
            "syncFrequency": "10s",
            "volumePluginDir": str(layout.root / "volume-plugins"),  # its default is below /usr
        }
    )


def _yaml(document: Mapping[str, Any]) -> str:
    return yaml.safe_dump(document, sort_keys=False)
