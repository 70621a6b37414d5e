"""This node in the cluster, over real HTTP against the small API server."""

import json
from contextlib import aclosing
from pathlib import Path
from typing import Any

import anyio
import pytest

from nodeagent.core.log.audit import DONE, Change, keeping
from nodeagent.edge.kube.errors import (
    ApiConflict,
    ApiFailed,
    ApiForbidden,
    ApiUnreachable,
    KubeError,
    NodeMissing,
)
from nodeagent.model.cluster import READY_CONDITION, NodeCondition, NodeEvent, Taint
from tests.component.edge_kube.harness import COUNT, open_node, take
from tests.fakes.apiserver import NODE

TAINT = Taint(key="nvidia.com/starting", effect="NoSchedule")


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
        with pytest.raises(ApiConflict, match="no existing object was found"):
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
        await node.remove_condition(READY_CONDITION)
        assert (await node.read_node()).condition is None


async def test_conditions_of_other_devices_stand_beside_that_of_gpus(tmp_path: Path) -> None:
    """Each comes and goes by itself, and what others keep is not read as ours."""
    async with open_node(tmp_path) as (server, node):
        cards = NodeCondition(type="devices.nodeagent.io/cards", status="True", reason="DevicesReady")
        foreign = NodeCondition(type="Ready", status="True", reason="KubeletReady")
        for condition in (foreign, cards, NodeCondition(status="True", reason="GPUsReady")):
            await node.write_condition(condition, changed=True)
        found = await node.read_node()
        assert found.device_conditions == (cards,)
        assert found.condition is not None
        await node.remove_condition(cards.type)
        assert (await node.read_node()).device_conditions == ()
        assert {each["type"] for each in server.nodes[NODE]["status"]["conditions"]} == {"Ready", READY_CONDITION}


async def test_the_kubelet_tells_its_version(tmp_path: Path) -> None:
    """As it writes it; a node whose kubelet has not come up has none."""
    async with open_node(tmp_path) as (server, node):
        found = await node.read_node()
        assert (found.kubelet_version, found.kubelet_release) == ("", None)
        server.nodes[NODE].setdefault("status", {})["nodeInfo"] = {"kubeletVersion": "v1.37.2+k3s1"}
        found = await node.read_node()
        assert (found.kubelet_version, found.kubelet_release) == ("v1.37.2+k3s1", (1, 37))


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
    """Only those under our prefix are read back, and those that cordon GPUs."""
    async with open_node(tmp_path) as (server, node):
        server.nodes[NODE]["metadata"]["annotations"] = {"team": "blue"}
        await node.write_annotation("nvidia.com/x", "1")
        assert (await node.read_node()).annotations == {"nvidia.com/x": "1"}
        await node.write_annotation("nvidia.com/x", None)
        assert server.nodes[NODE]["metadata"]["annotations"] == {"team": "blue"}
        cordons = {"nodeagent.io/gpu-cordon": "[]", "hami.io/device-cordon": "GPU-1"}
        server.nodes[NODE]["metadata"]["annotations"] = {"team": "blue", "nodeagent.io/other": "x", **cordons}
        assert (await node.read_node()).annotations == cordons


async def test_a_label_is_set_and_taken_off_whoever_has_set_it_before(tmp_path: Path) -> None:
    """And it is no label of those that are kept as a set."""
    async with open_node(tmp_path) as (server, node):
        server.nodes[NODE]["metadata"]["labels"] = {"nvidia.com/mig.config.state": "failed", "team": "blue"}
        await node.write_label("nvidia.com/mig.config.state", "pending")
        state = await node.read_node()
        assert state.labels == {"nvidia.com/mig.config.state": "pending", "team": "blue"}
        assert "nvidia.com/mig.config.state" not in state.owned_labels
        await node.write_label("nvidia.com/mig.config.state", None)
        assert (await node.read_node()).labels == {"team": "blue"}


async def test_events_are_about_the_node(tmp_path: Path) -> None:
    """Repetitions are counted, and a note of any length is cut to what is allowed."""
    async with open_node(tmp_path) as (server, node):
        state = await node.read_node()
        await node.write_event(state, NodeEvent(reason="GPUUnhealthy", note="x" * 2000), 3)
        await node.write_event(state, NodeEvent(reason="GPURecovered", note="GPU 1", warning=False), 3)
        await node.write_event(state, NodeEvent(reason="GPUUnhealthy", note="ü" * 600), 1)
        first, second, third = server.events
        assert first["regarding"] == {"apiVersion": "v1", "kind": "Node", "name": NODE, "uid": "uid-of-node-1"}
        assert (first["type"], len(first["note"].encode())) == ("Warning", 1024)
        assert third["note"] == "ü" * 510 + "…", "the server counts bytes"
        assert (second["type"], second["note"]) == ("Normal", "GPU 1 (3 times since this was last told)")
        assert first["metadata"]["name"] != second["metadata"]["name"]


async def test_changes_of_others_arrive(tmp_path: Path) -> None:
    """One watch: the node as it is, then as it becomes."""
    async with open_node(tmp_path) as (server, node):
        async with aclosing(node.follow_node()) as states:
            assert (await anext(states)).labels == {}
            server.put_label("team", "blue")
            assert (await anext(states)).labels == {"team": "blue"}
        assert [each[0] for each in server.requests] == ["WATCH"]


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
        assert [each[0] for each in server.requests] == ["WATCH", "WATCH"]


async def test_an_expired_watch_lists_anew(tmp_path: Path) -> None:
    """A version that is too old costs one read, whether the watch is refused or told so."""
    async with open_node(tmp_path) as (server, node):
        server.watch_lines.append(line("ERROR", code=410, message="too old resource version"))
        assert len(await take(node.follow_node(), 2)) == 2
        assert [each[0] for each in server.requests] == ["WATCH", "WATCH"]


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
            await take(node.follow_node(), 2)


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
            await take(node.follow_node(), 2)


async def test_a_watch_that_is_refused_has_the_same_names(tmp_path: Path) -> None:
    """A right that is missing for the watch alone is said as such."""
    async with open_node(tmp_path) as (server, node):
        server.streams_lists = False
        async with aclosing(node.follow_node()) as states:
            await anext(states)
            server.answer(403)
            with pytest.raises(ApiForbidden, match="watch node"):
                await anext(states)


async def test_what_is_written_is_noted_for_the_audit_log(tmp_path: Path) -> None:
    """With the path, what it was for and the patch; a refusal too. Reading and telling of events change nothing."""
    kept: list[Change] = []
    async with open_node(tmp_path) as (server, node):
        with keeping(kept.append):
            await node.apply_labels(await node.read_node(), {COUNT: "8"})
            await node.write_event(await node.read_node(), NodeEvent(reason="Sick", note="n", warning=True), 1)
            seen = await node.read_node()
            server.answer(403)
            with pytest.raises(ApiForbidden):
                await node.apply_labels(seen, {COUNT: "7"})
            await node.change_taint(TAINT, present=True)
    assert {each.name for each in kept} == {f"/api/v1/nodes/{NODE}"}
    assert [each.outcome.partition(":")[0] for each in kept] == [DONE, "ApiForbidden", DONE]
    assert json.loads(kept[0].detail)["metadata"]["labels"] == {COUNT: "8"}
