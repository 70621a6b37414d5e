"""This node in the cluster, over real HTTP against the small API server."""

import json
import time
from collections.abc import AsyncIterator
from contextlib import aclosing, asynccontextmanager
from pathlib import Path
from random import Random
from typing import Any

import anyio
import pytest

from nodeagent.edge.kube.client import ClientSettings, KubeClient
from nodeagent.edge.kube.credentials import Kubeconfig
from nodeagent.edge.kube.errors import (
    ApiBusy,
    ApiConflict,
    ApiFailed,
    ApiForbidden,
    ApiNotFound,
    ApiRefused,
    ApiUnauthorized,
    ApiUnreachable,
    CredentialsInvalid,
    KubeError,
    NodeMissing,
)
from nodeagent.edge.kube.node import KubeNode
from nodeagent.edge.kube.node_feature import NodeFeatureObject
from nodeagent.kernel.clock import SystemClock
from nodeagent.model.cluster import ClusterNode, NodeCondition, NodeEvent, Taint
from tests.fakes.apiserver import NODE, FakeApiServer

pytestmark = pytest.mark.anyio

EAGER = ClientSettings(timeout_seconds=5, requests_per_second=1000, burst=100)
IMPATIENT = ClientSettings(timeout_seconds=0.2, requests_per_second=1000, burst=100)
COUNT = "nvidia.com/gpu.count"
TAINT = Taint(key="nvidia.com/starting", effect="NoSchedule")


@asynccontextmanager
async def open_node(
    tmp_path: Path, settings: ClientSettings = EAGER, *, name: str = NODE, silence_seconds: float = 20
) -> AsyncIterator[tuple[FakeApiServer, KubeNode]]:
    async with FakeApiServer().running() as server:
        client = KubeClient(Kubeconfig(server.write_kubeconfig(tmp_path / "kubeconfig")), lambda: settings)
        try:
            yield server, KubeNode(client, name, SystemClock(), Random(1), silence_seconds=silence_seconds)
        finally:
            await client.aclose()


async def take(node: KubeNode, count: int) -> list[ClusterNode]:
    found: list[ClusterNode] = []
    async with aclosing(node.follow_node()) as states:
        async for state in states:
            found.append(state)
            if len(found) == count:
                return found
    raise AssertionError("a node is followed until something breaks")


async def test_labels_are_applied_and_found_to_be_ours(tmp_path: Path) -> None:
    """What was applied is owned; what is no longer named goes; what others wrote stays."""
    async with open_node(tmp_path) as (server, node):
        server.put_label("team", "blue")
        await node.apply_labels(await node.read_node(), {COUNT: "8", "nvidia.com/gpu.mode": "compute"})
        state = await node.read_node()
        assert state.owned_labels == (COUNT, "nvidia.com/gpu.mode")
        await node.apply_labels(state, {COUNT: "7"})
        assert server.labels() == {"team": "blue", COUNT: "7"}


async def test_a_label_of_somebody_else_is_not_taken(tmp_path: Path) -> None:
    """The server says conflict, and nothing is forced."""
    async with open_node(tmp_path) as (server, node):
        server.put_label(COUNT, "4")
        with pytest.raises(ApiConflict, match=r"\.metadata\.labels\.nvidia"):
            await node.apply_labels(await node.read_node(), {COUNT: "8"})
        assert server.labels() == {COUNT: "4"}


async def test_a_node_that_was_replaced_is_not_labelled(tmp_path: Path) -> None:
    """The node that was seen is named by its uid; another one of that name, or none, gets no label."""
    async with open_node(tmp_path) as (server, node):
        seen = await node.read_node()
        server.nodes[NODE]["metadata"]["uid"] = "another"
        with pytest.raises(ApiConflict):
            await node.apply_labels(seen, {COUNT: "8"})
        del server.nodes[NODE]
        with pytest.raises(ApiNotFound):
            await node.apply_labels(seen, {COUNT: "8"})
        with pytest.raises(NodeMissing, match=r"node-1: set node\.name"):
            await node.read_node()


async def test_the_condition_keeps_its_transition_time(tmp_path: Path) -> None:
    """A new message is no transition."""
    async with open_node(tmp_path) as (server, node):
        await node.write_condition(NodeCondition(status="False", reason="DriverStuck"), changed=True)
        first = server.find_condition()
        await node.write_condition(NodeCondition(status="False", reason="DriverStuck", message="still"), changed=False)
        second = server.find_condition()
        assert first is not None
        assert second is not None
        assert second["lastTransitionTime"] == first["lastTransitionTime"]
        assert (await node.read_node()).condition == NodeCondition(
            status="False", reason="DriverStuck", message="still"
        )
        await node.remove_condition()
        assert (await node.read_node()).condition is None


async def test_one_taint_comes_and_goes(tmp_path: Path) -> None:
    """Others stay, and putting it on twice is once."""
    async with open_node(tmp_path) as (server, node):
        other = {"key": "team", "effect": "NoExecute", "value": "blue"}
        server.nodes[NODE]["spec"]["taints"] = [other]
        for _ in range(2):
            await node.change_taint(TAINT, present=True)
        assert (await node.read_node()).taints == (Taint(key="team", effect="NoExecute", value="blue"), TAINT)
        await node.change_taint(TAINT, present=False)
        assert server.nodes[NODE]["spec"]["taints"] == [other]


async def test_annotations_are_set_and_taken_off(tmp_path: Path) -> None:
    """Only those under our prefix are read back."""
    async with open_node(tmp_path) as (server, node):
        server.nodes[NODE]["metadata"]["annotations"] = {"team": "blue"}
        await node.write_annotation("nvidia.com/x", "1")
        assert (await node.read_node()).annotations == {"nvidia.com/x": "1"}
        await node.write_annotation("nvidia.com/x", None)
        assert server.nodes[NODE]["metadata"]["annotations"] == {"team": "blue"}


async def test_events_are_about_the_node(tmp_path: Path) -> None:
    """Repetitions are counted, and a note of any length is cut to what is allowed."""
    async with open_node(tmp_path) as (server, node):
        state = await node.read_node()
        await node.write_event(state, NodeEvent(reason="GPUUnhealthy", note="x" * 2000), 3)
        await node.write_event(state, NodeEvent(reason="GPURecovered", note="GPU 1", warning=False), 3)
        first, second = server.events
        assert first["regarding"] == {"apiVersion": "v1", "kind": "Node", "name": NODE, "uid": "uid-of-node-1"}
        assert (first["type"], len(first["note"])) == ("Warning", 1024)
        assert (second["type"], second["note"]) == ("Normal", "GPU 1 (3 times since this was last told)")
        assert first["metadata"]["name"] != second["metadata"]["name"]


async def test_changes_of_others_arrive(tmp_path: Path) -> None:
    """One list, one watch: the node as it is, then as it becomes."""
    async with open_node(tmp_path) as (server, node):
        async with aclosing(node.follow_node()) as states:
            assert (await anext(states)).labels == {}
            server.put_label("team", "blue")
            assert (await anext(states)).labels == {"team": "blue"}
        assert [each[0] for each in server.requests] == ["GET", "WATCH"]


def line(kind: str, **content: Any) -> bytes:
    return json.dumps({"type": kind, "object": content}).encode() + b"\n"


async def test_a_watch_that_the_server_ends_goes_on(tmp_path: Path) -> None:
    """After its time the next one begins where it stopped, without reading the node again."""
    async with open_node(tmp_path) as (server, node):
        server.watch_lines.extend([line("BOOKMARK", metadata={"resourceVersion": str(server.version)}), b""])
        async with aclosing(node.follow_node()) as states:
            await anext(states)
            with anyio.fail_after(10):
                server.put_label("team", "blue")
                assert (await anext(states)).labels == {"team": "blue"}
        assert [each[0] for each in server.requests] == ["GET", "WATCH", "WATCH"]


async def test_an_expired_watch_lists_anew(tmp_path: Path) -> None:
    """A version that is too old costs one read, whether the watch is refused or told so."""
    async with open_node(tmp_path) as (server, node):
        server.watch_lines.append(line("ERROR", code=410, message="too old resource version"))
        assert len(await take(node, 2)) == 2
        assert [each[0] for each in server.requests] == ["GET", "WATCH", "GET"]


@pytest.mark.parametrize(
    ("said", "error"),
    [
        (line("ERROR", code=500, message="etcd"), ApiFailed),
        (b'{"type": "ERROR", "object": null}\n', ApiFailed),
        (line("DELETED", metadata={"resourceVersion": "1"}), NodeMissing),
        (line("MODIFIED", metadata={"resourceVersion": "1"}), ApiUnreachable),
        (b'{"type": "MODIFIED", "object": 5}\n', ApiUnreachable),
        (b"{not json\n", ApiUnreachable),
        (b"[]\n", ApiUnreachable),
    ],
)
async def test_a_broken_watch_is_an_error_with_a_name(tmp_path: Path, said: bytes, error: type[KubeError]) -> None:
    """Whatever a watch says instead of a change, nothing but our own errors comes out."""
    async with open_node(tmp_path) as (server, node):
        server.watch_lines.append(said)
        with pytest.raises(error):
            await take(node, 2)


async def test_a_watch_ends_with_the_connection_it_came_by(tmp_path: Path) -> None:
    """Where a rejected identity made everything be opened anew, nobody waits for what the old connection may say."""
    async with open_node(tmp_path, silence_seconds=600) as (server, node):
        async with aclosing(node.follow_node()) as states, anyio.create_task_group() as tasks:
            await anext(states)

            async def write_once_watched() -> None:
                while not server.watching:  # noqa: ASYNC110 - a server of another library, which has no event for it
                    await anyio.sleep(0.01)
                server.answer(401)
                await node.write_annotation("team", "blue")

            tasks.start_soon(write_once_watched)
            with anyio.fail_after(20), pytest.raises(ApiUnreachable, match="given up"):
                async for _ in states:
                    pass  # our own change, if it is told first


async def test_a_silent_watch_is_given_up(tmp_path: Path) -> None:
    """A connection whose other end is gone says nothing, and is not trusted for ever."""
    async with open_node(tmp_path, silence_seconds=0.1) as (_, node):
        with pytest.raises(ApiUnreachable, match="too slow"):
            await take(node, 2)


@pytest.mark.parametrize(
    ("status", "error"),
    [
        (400, ApiRefused),
        (401, ApiUnauthorized),
        (403, ApiForbidden),
        (404, ApiNotFound),
        (409, ApiConflict),
        (422, ApiRefused),
        (429, ApiBusy),
        (500, ApiFailed),
        (503, ApiFailed),
    ],
)
async def test_refusals_have_names(tmp_path: Path, status: int, error: type[ApiRefused]) -> None:
    """Each status is one class; the message says what was attempted and what the server said."""
    async with open_node(tmp_path) as (server, node):
        server.answer(status, times=2)
        with pytest.raises(error, match=f"cannot read node node-1: .*{status}: scripted {status}: "):
            await node.read_node()


@pytest.mark.parametrize("body", [b"", b"<html>gateway\n timeout</html>", b'{"message'])
async def test_a_refusal_without_a_message_is_readable(tmp_path: Path, body: bytes) -> None:
    """What stands before an API server answers with pages, or with nothing."""
    async with open_node(tmp_path) as (server, node):
        server.answer(502, body=body)
        with pytest.raises(ApiFailed) as caught:
            await node.read_node()
        assert "\n" not in str(caught.value)
        assert caught.value.message


async def test_a_watch_that_is_refused_has_the_same_names(tmp_path: Path) -> None:
    """A right that is missing for the watch alone is said as such."""
    async with open_node(tmp_path) as (server, node):
        async with aclosing(node.follow_node()) as states:
            await anext(states)
            server.answer(403)
            with pytest.raises(ApiForbidden, match="watch node"):
                await anext(states)


@pytest.mark.parametrize(
    "body", [b'{"items": [', b"[]", b"{}", b'{"items": [{}], "metadata": {"resourceVersion": "1"}}']
)
async def test_half_an_answer_is_no_answer(tmp_path: Path, body: bytes) -> None:
    """A cut or senseless answer is a server that does not answer."""
    async with open_node(tmp_path) as (server, node):
        server.break_off(body)
        with pytest.raises(ApiUnreachable):
            await node.read_node()


async def test_a_slow_server_is_given_up(tmp_path: Path) -> None:
    """Past its deadline a request is an error, and the next one is served."""
    async with open_node(tmp_path, IMPATIENT) as (server, node):
        server.hang()
        with pytest.raises(ApiUnreachable, match="too slow: nodeagent keeps trying"):
            await node.read_node()
        assert (await node.read_node()).name == NODE


async def test_a_server_that_is_away_is_said_to_be_away(tmp_path: Path) -> None:
    """Nobody listens: the error names the address; when it is back, the same client goes on."""
    async with open_node(tmp_path) as (server, node):
        await node.read_node()
        await server.stop()
        with pytest.raises(ApiUnreachable, match=f"http://127.0.0.1:{server.port} does not answer"):
            await node.read_node()
        await server.start()
        assert (await node.read_node()).name == NODE


async def test_a_renewed_token_is_taken_up(tmp_path: Path) -> None:
    """The server no longer takes the old one: the file is read again, and the request goes through."""
    async with open_node(tmp_path) as (server, node):
        await node.read_node()
        server.token = "token-2"
        server.write_kubeconfig(tmp_path / "kubeconfig", token="token-2")
        assert (await node.read_node()).name == NODE


async def test_the_server_decides_when_to_come_back(tmp_path: Path) -> None:
    """After a 429 with Retry-After no request is made before that time."""
    async with open_node(tmp_path) as (server, node):
        server.answer(429, headers={"Retry-After": "1"})
        with pytest.raises(ApiBusy) as caught:
            await node.read_node()
        assert caught.value.retry_after_seconds == 1
        before = anyio.current_time()
        await node.read_node()
        assert anyio.current_time() - before > 0.9


async def test_a_long_silence_is_not_waited_out(tmp_path: Path) -> None:
    """Asked to stay away for longer than a request may take, the client says so at once, and asks nothing."""
    async with open_node(tmp_path) as (server, node):
        server.answer(503, headers={"Retry-After": "3600"})
        with pytest.raises(ApiFailed):
            await node.read_node()
        with pytest.raises(ApiBusy, match="not again for 300 s"):
            await node.read_node()
        assert len(server.requests) == 1


async def test_credentials_that_cannot_be_used_are_named(tmp_path: Path) -> None:
    """A kubeconfig that is gone says which one, and no request is made."""
    async with open_node(tmp_path) as (server, node):
        (tmp_path / "kubeconfig").unlink()
        with pytest.raises(CredentialsInvalid, match="kubeconfig"):
            await node.read_node()
        assert server.requests == []


async def test_a_token_is_read_again_in_time(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Before it ends, and without a refusal; one that cannot be read then leaves the present one in use."""
    monkeypatch.setattr("nodeagent.edge.kube.client.RENEW_SECONDS", 0.0)
    async with open_node(tmp_path) as (server, node):
        await node.read_node()
        server.token = "token-2"
        server.write_kubeconfig(tmp_path / "kubeconfig", token="token-2")
        await node.read_node()
        (tmp_path / "kubeconfig").unlink()
        assert (await node.read_node()).name == NODE
        assert len(server.requests) == 3, "no request was refused"


async def test_a_certificate_that_is_none_is_named(tmp_path: Path) -> None:
    """A trust anchor that the TLS library refuses is a matter of the credentials, not of the server."""
    path = tmp_path / "kubeconfig"
    async with open_node(tmp_path) as (server, node):
        document = json.loads(path.read_text())
        data = "bm8gY2VydGlmaWNhdGU="
        document["clusters"][0]["cluster"] = {"server": "https://127.0.0.1:1", "certificate-authority-data": data}
        path.write_text(json.dumps(document))
        with pytest.raises(CredentialsInvalid, match="kubeconfig"):
            await node.read_node()
        assert server.requests == []


async def test_credentials_on_a_disk_that_hangs_are_given_up(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Reading them has a deadline like everything else."""
    monkeypatch.setattr("nodeagent.edge.kube.client.LOAD_SECONDS", 0.05)
    async with open_node(tmp_path) as (_, node):
        monkeypatch.setattr(Kubeconfig, "load", lambda *_: time.sleep(0.5))
        with pytest.raises(CredentialsInvalid, match="reading API credentials"):
            await node.read_node()
        monkeypatch.setattr(Kubeconfig, "read_namespace", lambda *_: time.sleep(0.5))
        client = KubeClient(Kubeconfig(tmp_path / "kubeconfig"))
        with pytest.raises(CredentialsInvalid, match="reading our namespace"):
            await client.read_namespace()


@pytest.mark.parametrize(("namespace", "used"), [("gpu-agents", "gpu-agents"), (None, "default")])
async def test_a_node_feature_is_read_as_it_was_written(tmp_path: Path, namespace: str | None, used: str) -> None:
    """None reads as nothing; the object names its node and holds the labels, empty values too."""
    async with FakeApiServer().running() as server:
        client = KubeClient(Kubeconfig(server.write_kubeconfig(tmp_path / "kubeconfig")), lambda: EAGER)
        feature = NodeFeatureObject(client, NODE, namespace)
        assert await feature.read() == ""
        text = f"nvidia.com/cuda.driver.rev=\n{COUNT}=8\n"
        await feature.write(text)
        assert await feature.read() == text
        assert f"/namespaces/{used}/" in server.requests[-1][1]
        document = server.features["nvidia-features-for-node-1"]
        assert document["metadata"]["labels"] == {"nfd.node.kubernetes.io/node-name": NODE}
        assert document["spec"]["labels"] == {"nvidia.com/cuda.driver.rev": "", COUNT: "8"}
        await client.aclose()


DAEMON_SET = {"apiVersion": "apps/v1", "kind": "DaemonSet", "name": "nodeagent", "uid": "ds"}


def make_pod(name: str, *owners: dict[str, str]) -> dict[str, object]:
    return {"metadata": {"name": name, "uid": f"uid-of-{name}", "ownerReferences": list(owners)}}


@asynccontextmanager
async def open_feature(tmp_path: Path, **more: str) -> AsyncIterator[tuple[FakeApiServer, NodeFeatureObject]]:
    async with FakeApiServer().running() as server:
        client = KubeClient(Kubeconfig(server.write_kubeconfig(tmp_path / "kubeconfig")), lambda: EAGER)
        try:
            yield server, NodeFeatureObject(client, NODE, **{"namespace": "default", **more})
        finally:
            await client.aclose()


def owners_of(server: FakeApiServer) -> list[tuple[str, str]]:
    metadata = server.features[f"nvidia-features-for-{NODE}"]["metadata"]
    return [(each["kind"], each["uid"]) for each in metadata.get("ownerReferences", ())]


async def test_a_node_feature_belongs_to_the_daemon_set_and_its_pod(tmp_path: Path) -> None:
    """It outlives the pod by the DaemonSet; the next pod takes it over by reading it, and labels stay."""
    async with open_feature(tmp_path, pod_name="agent-1") as (server, feature):
        server.pods = {each: make_pod(each, DAEMON_SET) for each in ("agent-1", "agent-2")}
        await feature.write("a=1\n")
        assert owners_of(server) == [("DaemonSet", "ds"), ("Pod", "uid-of-agent-1")]
        asked = len(server.requests)
        assert await feature.read() == "a=1\n"
        assert [method for method, _ in server.requests[asked:]] == ["GET"], "the owners are known by now"
        client = KubeClient(Kubeconfig(tmp_path / "kubeconfig"), lambda: EAGER)
        successor = NodeFeatureObject(client, NODE, None, "agent-2")
        assert await successor.read() == "a=1\n"
        assert owners_of(server) == [("DaemonSet", "ds"), ("Pod", "uid-of-agent-2")]
        await client.aclose()


@pytest.mark.parametrize("pod_name", ["agent-1", "absent"])
async def test_an_object_without_a_known_owner_has_none(tmp_path: Path, pod_name: str) -> None:
    """A pod of no DaemonSet, one that is not beside the object: labels are written, and nothing collects them."""
    async with open_feature(tmp_path, pod_name=pod_name) as (server, feature):
        server.pods = {"agent-1": make_pod("agent-1")}
        await feature.write("a=1\n")
        await feature.write("a=2\n")
        assert owners_of(server) == []
        assert await feature.read() == "a=2\n"


async def test_a_node_feature_is_taken_away_once(tmp_path: Path) -> None:
    """What is not there needs no removal; without the right to look there is nothing of ours to remove."""
    async with open_feature(tmp_path) as (server, feature):
        assert not await feature.remove()
        await feature.write("a=1\n")
        server.answer(403)
        assert not await feature.remove()
        assert await feature.remove()
        assert server.features == {}
