"""`nodeagent cluster status` and `publish`, over the API server of a whole cluster."""

import json
import signal
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from random import Random
from typing import Any

import anyio
import pytest

from nodeagent.cli.cluster.publish import Publisher
from nodeagent.cli.cluster.status import wait_ready
from nodeagent.cli.cluster.watching import WatchedCluster
from nodeagent.core.clock import SystemClock
from nodeagent.edge.kube import fleet
from nodeagent.edge.kube.client import KubeClient
from nodeagent.edge.kube.errors import ApiFailed, KubeError
from nodeagent.edge.kube.readiness.cluster import ClusterApi
from nodeagent.model.readiness import Readiness
from nodeagent.rules.cluster_readiness import PAUSE_SECONDS, SETTLE_SECONDS
from tests.component.edge_kube.harness import EAGER
from tests.fakes.fleet import FakeFleet
from tests.support.programs.command_line import run_here
from tests.support.waiting import in_thread, wait_until
from tests.support.wire.given_credentials import GivenCredentials

Json = dict[str, Any]
LABELS = {"app.kubernetes.io/name": "nodeagent"}
STARTED_SECONDS = 30


def put_daemon_set(server: FakeFleet, desired: int, namespace: str = "gpu", **metadata: Any) -> None:
    counts = {"observedGeneration": 1, "desiredNumberScheduled": desired, "updatedNumberScheduled": desired}
    conditions = server.objects["daemonsets"].get("nodeagent", {}).get("status", {}).get("conditions") or []
    known = {"namespace": namespace, "uid": "d", "labels": LABELS, "generation": 1} | metadata
    server.put("daemonsets", "nodeagent", {"metadata": known, "status": counts | {"conditions": conditions}})


def put_agent(server: FakeFleet, node: str, *, ready: bool = True) -> None:
    metadata: Json = {"namespace": "gpu", "uid": f"pod-{node}", "labels": LABELS}
    metadata["ownerReferences"] = [{"kind": "DaemonSet", "name": "nodeagent", "uid": "d"}]
    spec = {"nodeName": node, "containers": [{"image": "nodeagent:1.2"}]}
    status = {"phase": "Running", "conditions": [{"type": "Ready", "status": str(ready)}]}
    server.put("pods", f"nodeagent-{node}", {"metadata": metadata, "spec": spec, "status": status})


def put_gpu_node(server: FakeFleet, name: str, status: str = "True", reason: str = "GPUsReady") -> None:
    labels = {"nvidia.com/gpu.present": "true", "nvidia.com/gpu.product": "NVIDIA-H100"}
    gpus = {"type": "nvidia.com/GPUReady", "status": status, "reason": reason, "message": f"{reason} it is"}
    conditions = [{"type": "Ready", "status": "True"}, gpus]
    server.put(
        "nodes", name, {"metadata": {"uid": f"uid-{name}", "labels": labels}, "status": {"conditions": conditions}}
    )


def put_cluster(server: FakeFleet, *names: str) -> None:
    put_daemon_set(server, len(names))
    for name in names:
        put_gpu_node(server, name)
        put_agent(server, name)


def read_condition(server: FakeFleet) -> Json:
    (condition,) = server.objects["daemonsets"]["nodeagent"]["status"].get("conditions") or [{}]
    return dict(condition)


class OpenCluster:
    """A watched cluster over a server, with what went wrong."""

    def __init__(self, server: FakeFleet, client: KubeClient) -> None:
        self.server = server
        self.troubles: list[KubeError] = []
        api = ClusterApi(client, "gpu", SystemClock(), Random(1), silence_seconds=500)
        self.watched = WatchedCluster(api, Random(1), self.troubles.append)

    def judge(self) -> list[Readiness]:
        return [each.readiness for each in self.watched.decide(expects_conditions=True)]


@asynccontextmanager
async def open_cluster(tmp_path: Path, *names: str) -> AsyncIterator[OpenCluster]:
    """With nodes and their agents, all ready."""
    async with FakeFleet().running() as server:
        put_cluster(server, *names)
        client = KubeClient(GivenCredentials(server.write_kubeconfig(tmp_path / "kubeconfig")), lambda: EAGER)
        try:
            yield OpenCluster(server, client)
        finally:
            await client.aclose()


@asynccontextmanager
async def publishing(cluster: OpenCluster) -> AsyncIterator[None]:
    publisher = Publisher(cluster.watched, Random(1), expects_conditions=True)

    async def publish() -> None:
        await publisher.run()
        tasks.cancel_scope.cancel()

    async with anyio.create_task_group() as tasks:
        tasks.start_soon(cluster.watched.follow)
        tasks.start_soon(publish)
        yield
        publisher.stop()


def count_writes(cluster: OpenCluster) -> int:
    return cluster.server.requests["patch daemonsets"]


@pytest.mark.virtual_time
async def test_the_condition_follows_the_cluster(tmp_path: Path) -> None:
    """Good news once it lasts, bad news at once with node and reason, and Unknown after the end."""
    async with open_cluster(tmp_path, "a", "b") as cluster:
        server = cluster.server
        async with publishing(cluster):
            began = anyio.current_time()
            await wait_until(lambda: read_condition(server).get("status") == "True")
            assert anyio.current_time() - began >= SETTLE_SECONDS
            first = read_condition(server)["lastTransitionTime"]
            assert read_condition(server)["message"] == "2 nodes are ready: 2 with GPUs, 0 without"
            put_gpu_node(server, "b", "False", "DriverMissing")
            broken = anyio.current_time()
            await wait_until(lambda: read_condition(server)["status"] == "False")
            assert anyio.current_time() - broken < SETTLE_SECONDS
            assert read_condition(server)["reason"] == "NodesNotReady"
            assert read_condition(server)["message"] == (
                "1 of 2 nodes are not ready: b: DriverMissing: DriverMissing it is"
            )
            put_gpu_node(server, "b")
            await wait_until(lambda: read_condition(server)["status"] == "True")
            assert read_condition(server)["lastTransitionTime"] >= first
        assert (read_condition(server)["status"], read_condition(server)["reason"]) == ("Unknown", "NotWatched")
        assert cluster.troubles == []


@pytest.mark.virtual_time
async def test_a_quiet_cluster_costs_no_request(tmp_path: Path) -> None:
    """Heartbeats and other fields of the objects change nothing; watches alone are renewed."""
    async with open_cluster(tmp_path, "a") as cluster, publishing(cluster):
        server = cluster.server
        await wait_until(lambda: read_condition(server).get("status") == "True")
        await anyio.sleep(SETTLE_SECONDS)
        asked = {key: count for key, count in server.requests.items() if not key.startswith("watch")}
        for number in range(60):
            node = server.objects["nodes"]["a"]
            server.put("nodes", "a", node | {"spec": {"podCIDR": f"10.0.{number}.0/24"}})
            await anyio.sleep(1)
        assert {key: count for key, count in server.requests.items() if not key.startswith("watch")} == asked
        assert count_writes(cluster) == 1


@pytest.mark.virtual_time
async def test_a_large_change_is_told_in_few_writes(tmp_path: Path) -> None:
    """Nodes that come back one after another: the first bad news, some words in between, and the good news."""
    names = [f"n{number:02}" for number in range(60)]
    async with open_cluster(tmp_path, *names) as cluster:
        server = cluster.server
        for name in names:
            put_gpu_node(server, name, "False", "DriverMissing")
        async with publishing(cluster):
            await wait_until(lambda: read_condition(server).get("status") == "False")
            for name in names:
                put_gpu_node(server, name)
                await anyio.sleep(1)
            await wait_until(lambda: read_condition(server)["status"] == "True")
            assert count_writes(cluster) <= 2 + len(names) / PAUSE_SECONDS


@pytest.mark.virtual_time
async def test_a_condition_of_before_is_kept_by_the_next_publisher(tmp_path: Path) -> None:
    """A killed publisher leaves its last word, and its successor writes only what is otherwise."""
    async with open_cluster(tmp_path, "a") as cluster:
        server = cluster.server
        message = "1 node is ready: 1 with GPUs, 0 without"
        before = {"type": "nodeagent.io/Ready", "status": "True", "reason": "AllNodesReady", "message": message}
        server.objects["daemonsets"]["nodeagent"]["status"]["conditions"] = [before]
        async with publishing(cluster):
            await anyio.sleep(3 * SETTLE_SECONDS)
            assert count_writes(cluster) == 0
            server.objects["daemonsets"]["nodeagent"]["status"]["conditions"] = []
            put_daemon_set(server, 1)
            await wait_until(lambda: read_condition(server).get("status") == "True")


@pytest.mark.virtual_time
async def test_a_refused_write_is_tried_again(tmp_path: Path) -> None:
    async with open_cluster(tmp_path, "a") as cluster:
        cluster.server.refuse = [500, 409]
        async with publishing(cluster):
            await wait_until(lambda: read_condition(cluster.server).get("status") == "True")
            assert count_writes(cluster) == 3


@pytest.mark.virtual_time
async def test_a_lost_server_is_found_again(tmp_path: Path) -> None:
    """An old version is listed anew, a failed list is tried again, and what is gone meanwhile is gone."""
    async with open_cluster(tmp_path, "a", "b") as cluster:
        server = cluster.server
        server.refuse_lists = [500]
        async with publishing(cluster):
            await wait_until(lambda: read_condition(server).get("status") == "True")
            assert [type(each) for each in cluster.troubles] == [ApiFailed]
            await server.stop()
            server.drop("pods", "nodeagent-b")
            server.drop("nodes", "b")
            put_daemon_set(server, 1)
            server.store.forget()
            await server.start()
            await wait_until(lambda: read_condition(server)["message"] == "1 node is ready: 1 with GPUs, 0 without")


@pytest.mark.virtual_time
async def test_a_deleted_pod_is_missed(tmp_path: Path) -> None:
    async with open_cluster(tmp_path, "a", "b") as cluster, publishing(cluster):
        server = cluster.server
        await wait_until(lambda: read_condition(server).get("status") == "True")
        server.drop("pods", "nodeagent-b")
        await wait_until(lambda: read_condition(server)["reason"] == "AgentsMissing")


@pytest.mark.virtual_time
async def test_waiting_ends_once_readiness_lasts(tmp_path: Path) -> None:
    """With a line for each change; a node that is ready for a moment ends no wait."""
    lines: list[str] = []
    async with open_cluster(tmp_path, "a", "b") as cluster, anyio.create_task_group() as tasks:
        server = cluster.server
        await cluster.watched.read()
        tasks.start_soon(cluster.watched.follow)

        async def interfere() -> None:
            await anyio.sleep(SETTLE_SECONDS / 2)
            put_gpu_node(server, "b", "False", "DriverMissing")
            await anyio.sleep(SETTLE_SECONDS)
            put_gpu_node(server, "b")

        tasks.start_soon(interfere)
        began = anyio.current_time()
        await wait_ready(cluster.watched, cluster.judge, lines.append)
        assert anyio.current_time() - began >= 2.5 * SETTLE_SECONDS
        tasks.cancel_scope.cancel()
    assert lines == [
        "gpu/nodeagent: 2 of 2 nodes are ready (AllNodesReady)",
        "gpu/nodeagent: 1 of 2 nodes are ready (NodesNotReady)",
        "gpu/nodeagent: 2 of 2 nodes are ready (AllNodesReady)",
    ]


async def ask(server: FakeFleet, tmp_path: Path, *words: str) -> tuple[int, str, str]:
    kubeconfig = server.write_kubeconfig(tmp_path / "kubeconfig")
    return await in_thread(lambda: run_here("cluster", "status", "--kubeconfig", str(kubeconfig), *words))


async def test_the_command_names_nodes_reasons_and_remedies(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Listed in pages, in every namespace; ready nodes are counted by version and model."""
    monkeypatch.setattr(fleet, "PAGE", 2)
    async with FakeFleet().running() as server:
        put_cluster(server, "a", "b", "c", "d", "e")
        put_gpu_node(server, "b", "False", "DriverMissing")
        put_agent(server, "d", ready=False)
        server.put_node("control-plane")
        code, out, _ = await ask(server, tmp_path)
        head, *rows = out.splitlines()
        assert (code, head.split()) == (7, ["NODE", "REASON", "REMEDY", "MESSAGE"])
        remedy = "kubectl --namespace gpu exec nodeagent-b -- nodeagent status"
        assert rows[0] == f"b     DriverMissing  {remedy}  DriverMissing it is"
        assert rows[1].startswith("d     AgentNotReady  kubectl --namespace gpu describe pod nodeagent-d")
        assert rows[2:] == [
            "gpu/nodeagent: 3 of 5 nodes are ready (NodesNotReady)",
            "  ready by version: 1.2: 3",
            "  ready by GPU model: NVIDIA-H100: 3",
        ]
        code, out, _ = await ask(server, tmp_path, "-o", "name", "--namespace", "gpu")
        assert (code, out) == (7, "b\nd\n")
        assert server.requests["get nodes"] == 6
        put_cluster(server, "a", "b", "c", "d", "e")
        code, out, _ = await ask(server, tmp_path, "--json")
        assert (code, json.loads(out)["ready"], json.loads(out)["daemon_sets"][0]["nodes"]) == (0, True, 5)


async def test_every_kind_of_readiness_is_told(tmp_path: Path) -> None:
    """Nodes without an agent, without a GPU, and with some unhealthy GPUs are no rows, and not passed over."""
    async with FakeFleet().running() as server:
        put_cluster(server, "a", "b")
        put_gpu_node(server, "a", "True", "SomeGPUsUnhealthy")
        server.put(
            "nodes", "b", {"status": {"conditions": [{"type": "Ready", "status": "True"}]}, "metadata": {"uid": "b"}}
        )
        code, out, _ = await ask(server, tmp_path)
        assert (code, out.splitlines()[:3]) == (
            0,
            [
                "no node is known to be unready",
                "gpu/nodeagent: 2 of 2 nodes are ready (AllNodesReady)",
                "  2 nodes are ready: 1 with GPUs, 1 without",
            ],
        )
        assert "  ready, without a GPU: 1" in out
        assert "  ready, with some unhealthy GPUs: a" in out
        put_daemon_set(server, 3)
        code, out, _ = await ask(server, tmp_path)
        assert code == 7
        assert "  without an agent: 1" in out
        code, out, _ = await ask(server, tmp_path, "--set", "kubernetes.node_condition=false", "--wait", "0.1")
        assert code == 7


async def test_a_cluster_that_cannot_be_asked_says_why(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """No DaemonSet, a missing right, no credentials: each with its remedy."""
    async with FakeFleet().running() as server:
        code, _, err = await ask(server, tmp_path)
        assert (code, "install the chart or set --namespace" in err) == (4, True)
        code, _, err = await ask(server, tmp_path, "--namespace", "elsewhere", "--wait", "0.1")
        assert (code, "is in namespace elsewhere" in err) == (4, True)
        server.token, server.stranger = "secret", "t"
        code, _, err = await ask(server, tmp_path)
        assert (code, "deploy/rbac-cluster-status.yaml" in err) == (4, True)
        await server.stop()
        code, _, err = await ask(server, tmp_path)
        assert (code, "does not answer" in err) == (4, True)
        await server.start()
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.delenv("KUBECONFIG", raising=False)
    code, _, err = await in_thread(lambda: run_here("cluster", "status"))
    assert (code, f"nor {tmp_path}/.kube/config: set --kubeconfig" in err) == (2, True)


async def test_a_person_needs_no_flag(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The file of kubectl is found, by its variable or in its usual place."""
    async with FakeFleet().running() as server:
        put_cluster(server, "a")
        (tmp_path / ".kube").mkdir()
        server.write_kubeconfig(tmp_path / ".kube" / "config")
        monkeypatch.setenv("HOME", str(tmp_path))
        monkeypatch.delenv("KUBECONFIG", raising=False)
        assert (await in_thread(lambda: run_here("cluster", "status")))[0] == 0
        monkeypatch.setenv("KUBECONFIG", str(tmp_path / "nothing"))
        assert (await in_thread(lambda: run_here("cluster", "status")))[0] == 2


@pytest.mark.slow
async def test_the_program_publishes_until_it_is_stopped(tmp_path: Path) -> None:
    """As a process: from its start to SIGTERM; a second look at its settings is refused."""
    async with FakeFleet().running() as server:
        put_cluster(server, "a")
        put_gpu_node(server, "a", "False", "DriverMissing")
        kubeconfig = str(server.write_kubeconfig(tmp_path / "kubeconfig"))
        words = ("--kubeconfig", kubeconfig, "--namespace", "gpu", "--set", "log.format=json")
        line = (sys.executable, "-m", "nodeagent", "cluster", "publish", *words)
        async with await anyio.open_process(line, stdout=None) as process:
            await wait_until(lambda: read_condition(server).get("status") == "False")
            process.send_signal(signal.SIGHUP)
            process.terminate()
            with anyio.fail_after(STARTED_SECONDS):
                assert await process.wait() == 0
            assert process.stderr is not None
            log = b"".join([chunk async for chunk in process.stderr])
        events = [json.loads(each)["event"] for each in log.splitlines()]
        assert events[0] == "publishing_started"
        assert "condition_written" in events
        assert events[-1] == "publishing_stopped"
        assert read_condition(server)["reason"] == "NotWatched"
