"""The command line of every process of the cluster. Pure; who runs them and in which order is `cluster.py`.

The flags that surprise carry their reason; the others say what they do.
"""

from collections.abc import Callable, Mapping

from tests.integration.cluster.layout import KUBELET_ROOT, NODE_NAME, SERVICE_RANGE, Layout, Ports
from tests.integration.cluster.making.render import SERVICE_ACCOUNT_ISSUER

Command = tuple[str, ...]


def render_etcd(layout: Layout, ports: Ports) -> Command:
    """One member, nothing synced to disk: the state lives as long as the test."""
    client, peer = f"http://127.0.0.1:{ports.etcd_client}", f"http://127.0.0.1:{ports.etcd_peer}"
    return (
        "etcd",
        f"--data-dir={layout.etcd_data}",
        f"--listen-client-urls={client}",
        f"--advertise-client-urls={client}",
        f"--listen-peer-urls={peer}",
        f"--initial-advertise-peer-urls={peer}",
        f"--initial-cluster=default={peer}",
        "--unsafe-no-fsync",
        "--log-level=warn",
    )


def render_apiserver(layout: Layout, ports: Ports) -> Command:
    """RBAC and Node authorisation as on a real cluster, service account tokens included."""
    certs = layout.certs
    return (
        "kube-apiserver",
        f"--etcd-servers=http://127.0.0.1:{ports.etcd_client}",
        "--bind-address=127.0.0.1",
        f"--secure-port={ports.api}",
        f"--tls-cert-file={certs}/apiserver.crt",
        f"--tls-private-key-file={certs}/apiserver.key",
        f"--token-auth-file={certs}/tokens.csv",
        "--anonymous-auth=false",
        "--authorization-mode=Node,RBAC",
        "--enable-admission-plugins=NodeRestriction",
        f"--service-account-key-file={certs}/service-accounts.key",
        f"--service-account-signing-key-file={certs}/service-accounts.key",
        f"--service-account-issuer={SERVICE_ACCOUNT_ISSUER}",
        f"--service-cluster-ip-range={SERVICE_RANGE}",
        "--allow-privileged=true",
        # The kubelet listens on loopback alone, and only its name leads there (see the hosts file).
        "--kubelet-preferred-address-types=Hostname",
        f"--kubelet-certificate-authority={certs}/ca.crt",
        f"--kubelet-client-certificate={certs}/kubelet-client.crt",
        f"--kubelet-client-key={certs}/kubelet-client.key",
    )


def render_scheduler(layout: Layout, ports: Ports) -> Command:
    return (
        "kube-scheduler",
        f"--kubeconfig={layout.kubeconfig('scheduler')}",
        "--leader-elect=false",
        "--secure-port=0",
    )


def render_controllers(layout: Layout, ports: Ports) -> Command:
    return (
        "kube-controller-manager",
        f"--kubeconfig={layout.kubeconfig('controllers')}",
        "--leader-elect=false",
        "--secure-port=0",
        "--use-service-account-credentials=false",
        f"--service-account-private-key-file={layout.certs}/service-accounts.key",
        f"--root-ca-file={layout.certs}/ca.crt",
        "--controllers=*,-nodeipam",
        f"--flex-volume-plugin-dir={layout.root}/volume-plugins",
    )


def render_containerd(layout: Layout, ports: Ports) -> Command:
    return ("containerd", "--config", str(layout.config("containerd")))


def render_kubelet(layout: Layout, ports: Ports) -> Command:
    return (
        "kubelet",
        f"--config={layout.config('kubelet')}",
        f"--kubeconfig={layout.kubeconfig('node')}",
        f"--hostname-override={NODE_NAME}",
        f"--root-dir={KUBELET_ROOT}",  # ours is mounted there, in a mount namespace of the cluster's own
        "--v=2",
    )


# In order of start.
PROCESSES: Mapping[str, Callable[[Layout, Ports], Command]] = {
    "etcd": render_etcd,
    "containerd": render_containerd,
    "apiserver": render_apiserver,
    "controllers": render_controllers,
    "scheduler": render_scheduler,
    "kubelet": render_kubelet,
}
