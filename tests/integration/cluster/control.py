"""The cluster as a whole: up, down, and each of its processes stopped and started while it runs.

Owns the order. Starting clears whatever an earlier, killed run left; removing ends everything and proves that nothing
is left. Refuses to wait without a limit, and to go on when a process it needs has ended.
"""

import os
import shutil
import signal
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

from tests.integration.cluster import cgroups, sysctls
from tests.integration.cluster.api import Api, Json, is_node_ready
from tests.integration.cluster.commands import PROCESSES
from tests.integration.cluster.errors import ApiUnreachable, CommandFailed, LeftBehind, ProcessDied
from tests.integration.cluster.layout import CHECKOUT, NODE_NAME, Layout, State, choose_ports
from tests.integration.cluster.leftovers import find_leftovers
from tests.integration.cluster.making.build import Programs
from tests.integration.cluster.making.setup import read_token, write_files
from tests.integration.cluster.namespace import find_members, join_namespace, open_namespace
from tests.integration.cluster.processes import end, read_record, run, spawn, wait_until

RBAC = CHECKOUT / "deploy" / "rbac.yaml"
START_SECONDS = 60.0
STOP_SECONDS = 10.0
LAST_LINES = 15


class Cluster:
    """One running cluster; build it with `start_cluster`, or get the one that runs with `find_cluster`."""

    def __init__(self, layout: Layout, state: State) -> None:
        self.layout, self.state = layout, state
        self.environment: Mapping[str, str] = {
            "PATH": f"{layout.programs}:{os.environ['PATH']}",
            "HOME": str(layout.root),
            "KUBECONFIG": str(layout.kubeconfig("admin")),
            "CONTAINER_RUNTIME_ENDPOINT": f"unix://{layout.containerd_socket}",
        }

    @property
    def api(self) -> Api:
        return self.api_as(read_token(self.layout, "admin"))

    def api_as(self, token: str) -> Api:
        """The API server as the holder of `token` sees it."""
        return Api(self.state.ports.api, self.layout.certs / "ca.crt", token=token)

    @property
    def kubelet(self) -> Api:
        """The kubelet's own server, as the API server sees it."""
        certs = self.layout.certs
        pair = (certs / "kubelet-client.crt", certs / "kubelet-client.key")
        return Api(self.state.ports.kubelet, certs / "ca.crt", certificate=pair)

    def run(self, *command: str, stdin: str = "", timeout_seconds: float = 60) -> str:
        """Run kubectl, crictl, ctr or another program against this cluster; return its output."""
        return run(command, self.environment, stdin=stdin, timeout_seconds=timeout_seconds)

    def start(self, name: str) -> None:
        """Start one of the processes; return at once."""
        words = (*PROCESSES[name](self.layout, self.state.ports), *self.state.versions.list_flags(name))
        command = join_namespace(self.layout, words)
        spawn(command, self.layout.log(name), self.layout.records / name, self.environment)

    def stop(self, name: str, number: signal.Signals = signal.SIGTERM) -> None:
        """End one of the processes, whatever depends on it; kill it when it does not follow the signal."""
        process = read_record(self.layout.records / name)
        if process is not None and end((process,), number, STOP_SECONDS):
            end((process,), signal.SIGKILL, STOP_SECONDS)

    @contextmanager
    def stalled(self, name: str) -> Iterator[None]:
        """One of the processes stands still for as long as the block, as on a node without processor time."""
        process = read_record(self.layout.records / name)
        assert process is not None, f"{name} was not started"
        process.send(signal.SIGSTOP)
        try:
            yield
        finally:
            process.send(signal.SIGCONT)

    def restart_kubelet(self) -> None:
        """Stop the kubelet, start it again, and wait until it knows its pods and listens for device plugins."""
        before = self._identify_plugin_socket()
        self.stop("kubelet")
        self.start("kubelet")
        self.wait(
            "the kubelet's new socket",
            "kubelet",
            lambda: "not there" if self._identify_plugin_socket() in {None, before} else None,
        )
        self.wait("the kubelet to know its pods", "kubelet", self._find_unknown_pods)
        self.wait_node()

    def forget_devices(self) -> None:
        """Have the kubelet begin anew without its checkpoint, which says whose devices are whose."""
        self.stop("kubelet", signal.SIGKILL)
        (self.layout.device_plugins / "kubelet_internal_checkpoint").unlink()
        self.restart_kubelet()

    def _identify_plugin_socket(self) -> tuple[int, int] | None:
        """Tells one kubelet.sock from the next; None while there is none."""
        try:
            found = (self.layout.device_plugins / "kubelet.sock").stat()
        except FileNotFoundError:
            return None
        return found.st_ino, found.st_ctime_ns

    def _find_unknown_pods(self) -> str | None:
        """Names of pods that the kubelet itself does not list; a Node object alone may tell of the kubelet before."""
        bound = self.api.get("/api/v1/pods", fieldSelector=f"spec.nodeName={NODE_NAME}")
        try:
            known = self.kubelet.get("/pods")
        except ApiUnreachable as error:
            return str(error)
        unknown = pod_names(bound) - pod_names(known)
        return f"unknown: {', '.join(sorted(unknown))}" if unknown else None

    def restart_containerd(self) -> None:
        """Stop containerd, start it again, and wait until it answers."""
        self.stop("containerd")
        self.start("containerd")
        self.wait_containerd()

    def begin_outage(self) -> None:
        """Take the API server away at once: asked nicely, it would wait ten seconds for its watchers."""
        self.stop("apiserver", signal.SIGKILL)

    def end_outage(self) -> None:
        """Bring the API server back and wait until it serves.

        The scheduler and the controllers start anew, because left alone they look again only after up to a minute, and
        no scenario is about them. The kubelet and the agent have to come back by themselves.
        """
        for name in ("scheduler", "controllers"):
            self.stop(name, signal.SIGKILL)
        self.start("apiserver")
        self.wait_api()
        for name in ("scheduler", "controllers"):
            self.start(name)
        self.wait_node()

    def is_running(self, name: str) -> bool:
        process = read_record(self.layout.records / name)
        return process is not None and process.is_alive()

    def wait(
        self, what: str, needs: str, probe: Callable[[], str | None], timeout_seconds: float = START_SECONDS
    ) -> None:
        """Wait for `probe` to answer None, as long as the process `needs` lives.

        Raises:
            ProcessDied: it does not; the last lines of its log are in the message.
        """

        def checked() -> str | None:
            if not self.is_running(needs):
                raise ProcessDied(needs, self.layout.log(needs), self.read_log(needs))
            return probe()

        wait_until(what, checked, timeout_seconds=timeout_seconds)

    def count(self, resource: str, kind: str = "allocatable") -> int:
        """How many devices of a resource the node object shows."""
        return int(self.api.read_node()["status"].get(kind, {}).get(resource, "0"))

    def wait_count(self, resource: str, count: int, timeout_seconds: float = START_SECONDS) -> None:
        def probe() -> str | None:
            found = self.count(resource)
            return None if found == count else f"{found}"

        self.wait(f"{count} of {resource}", "kubelet", probe, timeout_seconds)

    def images(self, *words: str) -> str:
        """What containerd's own client says of the images that the kubelet sees."""
        return self.run("ctr", "-a", str(self.layout.containerd_socket), "-n", "k8s.io", "images", *words)

    @contextmanager
    def imported(self, image: bytes, name: str, directory: Path) -> Iterator[None]:
        """An image in the node's containerd, for as long as the block."""
        archive = directory / "image.tar"
        archive.write_bytes(image)
        self.images("import", "--local", str(archive))
        try:
            yield
        finally:
            self.images("remove", "--sync", name)

    def read_log(self, name: str, lines: int = LAST_LINES) -> str:
        """The end of one process's log."""
        return "\n".join(self.layout.log(name).read_text(errors="replace").splitlines()[-lines:])

    def wait_api(self) -> None:
        self.wait("the API server", "apiserver", lambda: None if self.api.is_ready() else "not ready")

    def wait_containerd(self) -> None:
        """Wait for the part of containerd that the kubelet talks to; it comes after the rest."""
        self.wait("containerd", "containerd", lambda: self._refusal("crictl", "version"))

    def wait_node(self, *, ready: bool = True) -> None:
        """Wait until the API server shows the node as ready, or as not ready."""

        def probe() -> str | None:
            try:
                node = self.api.find(f"/api/v1/nodes/{NODE_NAME}")
            except ApiUnreachable as error:
                return str(error)
            return (
                None
                if node is not None and is_node_ready(node) is ready
                else f"node {node and node.get('status', {}).get('conditions')}"
            )

        self.wait(f"node {NODE_NAME} {'ready' if ready else 'not ready'}", "apiserver", probe)

    def _refusal(self, *command: str) -> str | None:
        try:
            self.run(*command)
        except CommandFailed as error:
            return str(error)
        return None

    def bring_up(self) -> None:
        """Start everything in a prepared scratch directory and wait until a pod could run."""
        for name in ("etcd", "containerd", "apiserver"):
            self.start(name)
        self.wait_containerd()
        self.images("import", "--local", str(self.layout.image))
        self.wait_api()
        for name in ("controllers", "scheduler", "kubelet"):
            self.start(name)
        self.run("kubectl", "apply", "-f", str(RBAC))
        self.wait("the default service account", "controllers", self._find_service_account)
        self.wait_node()

    def _find_service_account(self) -> str | None:
        found = self.api.find("/api/v1/namespaces/default/serviceaccounts/default")
        return None if found else "not created yet"


def pod_names(pods: Json) -> set[str]:
    """The names in a list of pods, as the API server or the kubelet gives it."""
    return {each["metadata"]["name"] for each in pods["items"] or ()}


def start_cluster(layout: Layout, programs: Programs) -> Cluster:
    """Clear the place, then bring a new cluster up in it."""
    cluster = _prepare_cluster(layout, programs)
    cgroups.create(layout.cgroup_root, cgroups.read_hierarchies())
    cluster.bring_up()
    return cluster


def start_api_server(layout: Layout, programs: Programs) -> Cluster:
    """Clear the place, then bring an API server up in it, without anything that changes its objects by itself."""
    cluster = _prepare_cluster(layout, programs)
    for name in ("etcd", "apiserver"):
        cluster.start(name)
    cluster.wait_api()
    # Made by a controller in a whole cluster; no pod is created without one.
    account = {"apiVersion": "v1", "kind": "ServiceAccount", "metadata": {"name": "default"}}
    cluster.api.post("/api/v1/namespaces/default/serviceaccounts", account)
    return cluster


def _prepare_cluster(layout: Layout, programs: Programs) -> Cluster:
    remove_cluster(layout)
    state = State(choose_ports(), programs.versions, sysctls.read_sysctls())
    write_files(layout, state.ports, state.versions)
    for name, program in programs.paths.items():
        (layout.programs / name).symlink_to(program)
    state.write(layout)
    open_namespace(layout)
    return Cluster(layout, state)


def find_cluster(layout: Layout) -> Cluster | None:
    """The cluster that runs in this place, or None when not all of it does."""
    state = State.read(layout)
    cluster = None if state is None else Cluster(layout, state)
    return cluster if cluster is not None and all(map(cluster.is_running, PROCESSES)) else None


def remove_cluster(layout: Layout) -> None:
    """End every process of the cluster and remove every trace, whatever state it is in.

    Raises:
        LeftBehind: something could not be removed; the message names it.
    """
    hierarchies = cgroups.read_hierarchies()
    for _ in range(3):  # what a process started while it was being ended is found in the next round
        found = (*find_members(layout), *cgroups.find_processes(layout.cgroup_root, hierarchies))
        if not found:
            break
        end(found, signal.SIGKILL, STOP_SECONDS)
    cgroups.remove(layout.cgroup_root, hierarchies, timeout_seconds=STOP_SECONDS)
    state = State.read(layout)
    if state is not None:
        sysctls.restore_sysctls(state.sysctls)
    if not find_members(layout):  # their mounts could still lead elsewhere
        shutil.rmtree(layout.root, ignore_errors=True)
    leftovers = find_leftovers(layout)
    if leftovers:
        raise LeftBehind(leftovers)
