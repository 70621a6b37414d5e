"""What the neighbours do when one of them goes away and returns: the ground the agent's own outage laws stand on."""

from tests.integration.cluster.control import Cluster
from tests.integration.cluster.pods import Pods, render_pod


def test_pods_outlive_an_api_outage(node: Cluster, pods: Pods) -> None:
    """While the API server is away its pods run on, and after its return new pods start."""
    name = pods.run(render_pod("before"))
    container = pods.container_id(name)
    node.begin_outage()
    assert not node.api.is_ready()
    assert node.run("crictl", "exec", container, "echo", "alive") == "alive\n"
    node.end_outage()
    pods.run(render_pod("after"))
    assert pods.container_id(name) == container


def test_a_kubelet_restart_keeps_the_pod(node: Cluster, pods: Pods) -> None:
    """The same container runs on, uncounted, and the kubelet listens for plugins on a new socket."""
    name = pods.run(render_pod("kept"))
    container = pods.container_id(name)
    socket = node.layout.device_plugins / "kubelet.sock"
    before = socket.stat().st_ctime_ns
    node.restart_kubelet()
    pods.wait(name, "Running")
    assert pods.container_id(name) == container
    assert pods.read(name)["status"]["containerStatuses"][0]["restartCount"] == 0
    assert socket.stat().st_ctime_ns > before
    assert pods.exec(name, "echo", "alive") == "alive\n"


def test_a_containerd_restart_keeps_the_pod(node: Cluster, pods: Pods) -> None:
    """Containers belong to their shims: containerd comes back and finds them running."""
    name = pods.run(render_pod("kept"))
    container = pods.container_id(name)
    node.restart_containerd()
    assert node.run("crictl", "exec", container, "echo", "alive") == "alive\n"
    node.wait_node()
    pods.run(render_pod("after"))
    assert pods.container_id(name) == container
