"""Somebody who may create pods, and reaches the port, tries to keep a node's GPUs from those who wait for them.

The extender is set up as the chart does it: the verb `predicates` alone, and a key for choices.
"""

import json
from pathlib import Path

import pytest

from nodeagent.config.sections.extender import VERBS
from nodeagent.core.clock import SystemClock
from nodeagent.edge.http.messages import Response
from nodeagent.edge.http.queue import RequestQueue
from nodeagent.edge.http.routes import Routes
from nodeagent.extender.gpu_pod import CHOICE_DIGEST
from nodeagent.extender.replica import Replica
from nodeagent.extender.trust.digest import ChoiceDigests
from tests.component.extender.harness import OpenExtender, capacity, open_extender, open_server
from tests.fakes.fleet import FakeFleet
from tests.support.scheduling import limit

KEY = b"k" * 32
NODE, INDEX = "tencent.com/predicate-node", "tencent.com/predicate-gpu-idx-0"
GPUS = 8


def choose(gpu: int, moment: int = 1) -> dict[str, str]:
    """What a real choice looks like, as anybody can read it on the pods of a cluster."""
    return {NODE: "n", "tencent.com/predicate-time": str(moment), "tencent.com/gpu-assigned": "false", INDEX: f"{gpu}"}


def edit(server: FakeFleet, pod: str, annotations: dict[str, str]) -> None:
    document = server.objects["pods"][pod]
    server.put("pods", pod, document | {"metadata": document["metadata"] | {"annotations": annotations}})


async def fill(server: FakeFleet, extender: OpenExtender) -> None:
    """All GPUs of the node, one each, go to those who wait."""
    for gpu in range(GPUS):
        server.put_pod(f"real-{gpu}", limit(100))
        assert await extender.schedule(f"real-{gpu}") == "n"
    assert sorted(server.annotations(f"real-{gpu}")[INDEX] for gpu in range(GPUS)) == list("01234567")


@pytest.mark.long
async def test_made_up_questions_hold_nothing(tmp_path: Path) -> None:
    """Eight of them, a GPU each: of pods that are nowhere, and by verbs that nobody was told of."""
    async with open_server() as server:
        server.put_node("n", capacity=capacity(GPUS, 64))
        async with open_extender(server, tmp_path, keys=[KEY]) as extender:
            told = Routes(extender.service.routes(RequestQueue(lambda: 1, wait_seconds=1), VERBS[:1]))
            assert isinstance(told.find("POST", "/scheduler/filter"), Response)
            for number in range(GPUS):
                spec = {"containers": [{"name": "c", "resources": {"limits": dict(limit(100))}}]}
                metadata = {"name": f"p{number}", "namespace": "default", "uid": f"u{number}"}
                body = json.dumps({"Pod": {"metadata": metadata, "spec": spec}, "NodeNames": ["n"]}).encode()
                answer = json.loads((await extender.call("POST", "/scheduler/predicates", body)).body)
                assert "told of no pod" in answer["Error"]
            assert not extender.cluster.holds
            assert server.requests["patch pods"] == 0
            await fill(server, extender)


async def test_choices_of_their_own_making_hold_nothing(tmp_path: Path) -> None:
    """On pods that are never scheduled, edited again and again, with digests made up and copied."""
    async with open_server() as server:
        server.put_node("n", capacity=capacity(GPUS, 64))
        server.put_pod("seen", limit(10, 1))
        async with open_extender(server, tmp_path, keys=[KEY]) as extender:
            assert (await extender.ask("predicates", "seen"))["NodeNames"] == ["n"]
            real = server.annotations("seen")
            assert len(real[CHOICE_DIGEST]) == 64
            server.drop("pods", "seen")
            for moment, digest in enumerate(({}, {CHOICE_DIGEST: "0" * 64}, {CHOICE_DIGEST: real[CHOICE_DIGEST]})):
                for gpu in range(GPUS):
                    server.put_pod(f"idle-{gpu}", limit(100), annotations=choose(gpu, moment) | digest)
            server.put_pod("copy", limit(10, 1), annotations=real)
            await extender.wait_seen("copy")
            assert not extender.cluster.holds
            assert len(extender.foreign) == GPUS + 1
            assert f"nodeagent_extender_foreign_choices_total {GPUS + 1}" in (await extender.get("/metrics"))[1]
            await fill(server, extender)
            replica = Replica(None, "one", 15.0, extender.cluster, extender.annotations, lambda: 10.0**9)
            assert await replica.sweep() == 0


async def test_a_pod_with_a_choice_of_its_own_making_is_chosen_for_like_any_other(tmp_path: Path) -> None:
    """Its own words give way to the extender's, which holds."""
    async with open_server() as server:
        server.put_node("n", capacity=capacity(2))
        mine = choose(1) | {"tencent.com/predicate-gpu-idx-1": "1", CHOICE_DIGEST: "x"}
        server.put_pod("a", limit(100), annotations=mine)
        async with open_extender(server, tmp_path, keys=[KEY]) as extender:
            assert (await extender.ask("predicates", "a"))["NodeNames"] == ["n"]
            await extender.wait_seen("a")
            assert server.annotations("a")[INDEX] == "0"
            assert "tencent.com/predicate-gpu-idx-1" not in server.annotations("a")
            (hold,) = extender.cluster.holds.values()
            assert hold.node == "n"


async def test_a_choice_that_was_made_once_is_not_renewed_by_its_owner(tmp_path: Path) -> None:
    """Taken off and put back it holds until it would have ended, and no longer."""
    async with open_server() as server:
        server.put_node("n", capacity=capacity(1))
        server.put_pod("a", limit(100))
        async with open_extender(server, tmp_path, keys=[KEY]) as extender:
            assert (await extender.ask("predicates", "a"))["NodeNames"] == ["n"]
            await extender.wait_seen("a")
            real = server.annotations("a")
            ends = extender.cluster.holds["uid-of-a"].until_seconds
            for annotations in (choose(0, 7), real, choose(0, 8), real):
                edit(server, "a", annotations)
                await extender.wait_seen("a")
                assert extender.cluster.holds["uid-of-a"].until_seconds == ends
            extender.cluster.expire(ends)
            for annotations in ({}, real):
                edit(server, "a", annotations)
                await extender.wait_seen("a")
                assert not extender.cluster.holds
            server.put_pod("b", limit(100))
            assert await extender.schedule("b") == "n"


async def test_replicas_with_one_key_believe_each_other(tmp_path: Path) -> None:
    """And one whose key is newer, as soon as it has that key, too."""
    newer = b"n" * 32
    async with open_server() as server:
        server.put_node("n", capacity=capacity(1))
        server.put_pod("a", limit(60, 4))
        server.put_pod("b", limit(60, 4))
        async with (
            open_extender(server, tmp_path, keys=[KEY, newer]) as one,
            open_extender(server, tmp_path, keys=[newer, KEY]) as two,
            open_extender(server, tmp_path, keys=[KEY]) as late,
        ):
            assert (await two.ask("predicates", "a"))["NodeNames"] == ["n"]
            for replica in (one, late):
                await replica.wait_seen("a")
            assert (await one.ask("predicates", "b"))["NodeNames"] == []
            assert not late.cluster.holds
            late.cluster.use_digests(ChoiceDigests([newer]), SystemClock().monotonic())
            assert (await late.ask("predicates", "b"))["NodeNames"] == []


async def test_pods_that_run_keep_what_they_have_when_a_key_comes(tmp_path: Path) -> None:
    """They were chosen for without one."""
    async with open_server() as server:
        server.put_node("n", capacity=capacity(2))
        server.put_pod("old", limit(100), node="n", annotations=choose(1), phase="Running")
        server.put_pod("new", limit(50, 1))
        async with open_extender(server, tmp_path, keys=[KEY]) as extender:
            assert await extender.schedule("new") == "n"
            assert server.annotations("new")[INDEX] == "0"
            server.put_pod("third", limit(100))
            assert await extender.schedule("third") == ""
            assert not extender.foreign
