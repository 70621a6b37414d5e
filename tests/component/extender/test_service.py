"""Questions and answers over a small API server: what is promised is written, and nothing is given twice."""

import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import anyio
import pytest
from prometheus_client.parser import text_string_to_metric_families

from nodeagent.extender.messages import ELSEWHERE
from tests.component.extender.harness import OpenExtender, capacity, open_extender, open_server
from tests.fakes.fleet import FakeFleet
from tests.support.gpus import gpu_uuid, make_inventory
from tests.support.placement import make_sized, six
from tests.support.scheduling import SHARE, limit, publish
from tests.support.waiting import wait_until

INDEX, UUID = "tencent.com/predicate-gpu-idx-0", "tencent.com/predicate-gpu-uuid-0"


async def test_a_choice_stands_on_the_pod_before_it_is_answered(tmp_path: Path) -> None:
    """One node is left, and the annotations are those of the original, with UUIDs where the node tells them."""
    async with open_server() as server:
        server.put_node("ours", {"nvidia.com/gpu-fractions": publish(six())})
        server.put_node("plain", capacity=capacity())
        server.put_pod("a", limit(50, 4))
        async with open_extender(server, tmp_path) as extender:
            found = await extender.ask("predicates", "a")
            assert (found["NodeNames"], found["FailedNodes"], found["Error"]) == (["plain"], {"ours": ELSEWHERE}, "")
            written = server.annotations("a")
            assert (written["tencent.com/predicate-node"], written[INDEX]) == ("plain", "0")
            assert written["tencent.com/gpu-assigned"] == "false"
            assert int(written["tencent.com/predicate-time"]) > 1_700_000_000_000_000_000
            assert UUID not in written
            server.put_pod("b", limit(60, 10))
            assert (await extender.ask("predicates", "b", ["ours"]))["NodeNames"] == ["ours"]
            assert (server.annotations("b")[INDEX], server.annotations("b")[UUID]) == ("0", gpu_uuid(0))


async def test_a_pod_of_others_passes(tmp_path: Path) -> None:
    """Every node will do, every score is zero, and nothing is written."""
    async with open_server() as server:
        server.put_node("n")
        server.put_pod("a", {"cpu": "1"})
        async with open_extender(server, tmp_path) as extender:
            assert (await extender.ask("predicates", "a"))["NodeNames"] == ["n"]
            assert (await extender.ask("filter", "a"))["NodeNames"] == ["n"]
            assert await extender.ask("prioritize", "a") == [{"Host": "n", "Score": 0}]
            assert server.requests["patch pods"] == 0


async def test_pods_that_come_faster_than_the_watch_get_different_gpus(tmp_path: Path) -> None:
    """What was promised counts at once, whatever the API server tells and when."""
    async with open_server() as server:
        for name in "nm":
            server.put_node(name, capacity=capacity())
        for number in range(6):
            server.put_pod(f"p{number}", limit(100))
        async with open_extender(server, tmp_path) as extender:
            server.hold_watches = True
            found: list[Any] = []

            async def ask(pod: str) -> None:
                found.append(await extender.ask("predicates", pod))

            async with anyio.create_task_group() as tasks:
                for number in range(6):
                    tasks.start_soon(ask, f"p{number}")
            chosen = [each for each in found if each["NodeNames"]]
            assert len(chosen) == 4
            taken = {
                (notes["tencent.com/predicate-node"], notes[INDEX])
                for number in range(6)
                if INDEX in (notes := server.annotations(f"p{number}"))
            }
            assert len(taken) == 4
            reasons = {reason for each in found if not each["NodeNames"] for reason in each["FailedNodes"].values()}
            assert reasons == {"no GPU that nobody has a part of"}


async def test_a_pod_that_was_chosen_for_and_not_bound_is_asked_about_again(tmp_path: Path) -> None:
    """The original refused such a pod for ever; here its own choice is nothing in its way."""
    async with open_server() as server:
        server.put_node("n", capacity=capacity(1))
        server.put_pod("a", limit(100), annotations={"tencent.com/gpu-assigned": "false", INDEX: "7"})
        async with open_extender(server, tmp_path) as extender:
            for _ in range(3):
                assert (await extender.ask("predicates", "a"))["NodeNames"] == ["n"]
            await extender.wait_seen("a")
            assert (await extender.ask("predicates", "a"))["NodeNames"] == ["n"]
            assert server.annotations("a")[INDEX] == "0"


async def test_where_there_is_no_room_any_more_an_earlier_choice_is_taken_off(tmp_path: Path) -> None:
    """Or other replicas would count it; one that changed meanwhile is left alone."""
    async with open_server() as server:
        server.put_node("n", capacity=capacity(1))
        server.put_pod("a", limit(100))
        server.put_pod("b", limit(100), node="n", annotations={INDEX: "0"})
        notes = {"tencent.com/predicate-node": "n", "tencent.com/predicate-time": "1", INDEX: "0", "mine": "1"}
        server.put_pod("a", limit(100), annotations=notes)
        async with open_extender(server, tmp_path) as extender:
            server.refuse.append(409)
            assert (await extender.ask("predicates", "a"))["NodeNames"] == []
            assert server.annotations("a") == notes
            assert (await extender.ask("predicates", "a"))["NodeNames"] == []
            assert server.annotations("a") == {"mine": "1"}


@pytest.mark.parametrize(("status", "words"), [(500, "answered 500"), (409, "answered 409"), (404, "answered 404")])
async def test_a_choice_that_cannot_be_written_is_void(tmp_path: Path, status: int, words: str) -> None:
    """The scheduler is told why and asks again; until then others may have the GPU."""
    async with open_server() as server:
        server.put_node("n", capacity=capacity(1))
        server.put_pod("a", limit(100))
        server.put_pod("b", limit(100))
        async with open_extender(server, tmp_path) as extender:
            server.refuse.append(status)
            found = await extender.ask("predicates", "a")
            assert found["Error"].startswith("cannot write the choice for pod default/a: ")
            assert words in found["Error"]
            assert await extender.schedule("b") == "n"


async def test_a_pod_that_is_gone_meanwhile_holds_nothing(tmp_path: Path) -> None:
    """Deleted between the question and the answer, and between the answer and the binding."""
    async with open_server() as server:
        server.put_node("n", capacity=capacity(1))
        gone = server.put_pod("a", limit(100))
        server.put_pod("b", limit(100))
        async with open_extender(server, tmp_path) as extender:
            server.hold_watches = True
            server.drop("pods", "a")
            body = json.dumps({"Pod": gone, "NodeNames": ["n"]}).encode()
            answer = await extender.call("POST", "/scheduler/predicates", body)
            assert "answered 404" in json.loads(answer.body)["Error"]
            server.release_watches()
            assert (await extender.ask("predicates", "b"))["NodeNames"] == ["n"]
            server.drop("pods", "b")
            server.put_pod("c", limit(100))
            await extender.wait_seen("c")
            assert await extender.schedule("c") == "n"


async def test_a_bound_pod_is_not_scheduled_again(tmp_path: Path) -> None:
    """Whether the question says so or the watch does."""
    async with open_server() as server:
        server.put_node("n", capacity=capacity())
        waiting = server.put_pod("a", limit(10, 1))
        server.put_pod("a", limit(10, 1), node="n")
        async with open_extender(server, tmp_path) as extender:
            for verb in ("predicates", "filter"):
                assert (await extender.ask(verb, "a"))["Error"] == "pod default/a is bound to n already"
                body = json.dumps({"Pod": waiting, "NodeNames": ["n"]}).encode()
                answer = await extender.call("POST", f"/scheduler/{verb}", body)
                assert json.loads(answer.body)["Error"] == "pod default/a is bound to n already"


async def test_filter_proposes_and_the_scheduler_chooses(tmp_path: Path) -> None:
    """All nodes with room are left and scored; the best counts for a moment, then where the pod really is."""
    async with open_server() as server:
        for name in "nm":
            server.put_node(name, capacity=capacity(1))
        for name in "abc":
            server.put_pod(name, limit(100))
        async with open_extender(server, tmp_path) as extender:
            assert (await extender.ask("filter", "a"))["NodeNames"] == ["m", "n"]
            assert await extender.ask("prioritize", "a") == [{"Host": "n", "Score": 9}, {"Host": "m", "Score": 10}]
            assert (await extender.ask("filter", "b"))["NodeNames"] == ["n"]
            assert server.requests["patch pods"] == 0
            server.put_pod("a", limit(100), node="n")
            await extender.wait_seen("a")
            assert (await extender.ask("filter", "b"))["NodeNames"] == ["m"]
            assert (await extender.ask("filter", "c"))["NodeNames"] == []


@asynccontextmanager
async def asked_at_once(
    server: FakeFleet, directory: Path
) -> AsyncIterator[tuple[tuple[OpenExtender, OpenExtender], dict[str, Any]]]:
    """Two replicas, of which one was asked for pod a and the other for pod b before either knew; what each answered."""
    (directory / "two").mkdir()
    async with (
        open_extender(server, directory, confirm_seconds=10) as one,
        open_extender(server, directory / "two", confirm_seconds=10) as two,
    ):
        server.hold_watches = True
        found: dict[str, Any] = {}

        async def ask(extender: OpenExtender, pod: str) -> None:
            found[pod] = await extender.ask("predicates", pod)

        async with anyio.create_task_group() as tasks:
            tasks.start_soon(ask, one, "a")
            tasks.start_soon(ask, two, "b")
            await wait_until(lambda: server.requests["patch pods"] == 2)
            server.release_watches()
        yield (one, two), found


async def test_two_replicas_never_give_the_same_gpu(tmp_path: Path) -> None:
    """Asked at the same time, each sees what the other wrote before it answers; who was not alone begins again."""
    async with open_server() as server:
        server.put_node("n", capacity=capacity(1))
        for name in "ab":
            server.put_pod(name, limit(60, 1))
        async with asked_at_once(server, tmp_path) as (replicas, found):
            chosen = [pod for pod, each in found.items() if each["NodeNames"]]
            assert len(chosen) <= 1
            refused = next(each for each in found.values() if not each["NodeNames"])
            assert refused["Error"].endswith(
                "another replica chose the same on n at the same time: the scheduler asks again"
            )
            for name in {"a", "b"} - set(chosen):
                server.drop("pods", name)
            server.put_pod("c", limit(60, 1))
            for extender in replicas:
                await extender.wait_seen("c")
            assert bool((await replicas[1].ask("predicates", "c"))["NodeNames"]) == (not chosen)


@pytest.mark.parametrize(("requests", "most"), [(("mps", "library"), 48), (("mps", "mps"), 1)])
async def test_two_replicas_never_mix_what_mps_keeps_apart(
    tmp_path: Path, requests: tuple[str, str], most: int
) -> None:
    """There is room for both on the GPU, but not for one past the daemon of the other, nor for one client too many."""
    async with open_server() as server:
        text = publish(make_inventory(make_sized(1)), enforcement="mps", mps_clients=most)
        server.put_node("n", {"nvidia.com/gpu-fractions": text})
        for name, request in zip("ab", requests, strict=True):
            server.put_pod(name, limit(30, 1), annotations={"nodeagent.io/gpu-enforcement": request})
        async with asked_at_once(server, tmp_path) as (_, found):
            assert sum(bool(each["NodeNames"]) for each in found.values()) <= 1
            assert any("another replica chose the same on n" in each["Error"] for each in found.values())


@pytest.mark.parametrize("init", [{SHARE: "1", "nvidia.com/gpumem": "4096"}, {SHARE: "1"}], ids=["a part", "all of it"])
@pytest.mark.parametrize("mps", [{}, {"enforcement": "mps", "mps_clients": 1}], ids=["no MPS", "MPS"])
async def test_a_pod_is_not_in_its_own_way(tmp_path: Path, init: dict[str, str], mps: dict[str, Any]) -> None:
    """An init container is over when the others run on the GPU that it had, and counts for no second user of it."""
    async with open_server() as server:
        text = publish(make_inventory(make_sized(1)), profile="hami", users_max=1, **mps)
        server.put_node("n", {"nvidia.com/gpu-fractions": text})
        pod = server.put_pod("a", {SHARE: "1", "nvidia.com/gpumem": "1024"})
        early = {"name": "early", "resources": {"limits": init}}
        server.put("pods", "a", pod | {"spec": pod["spec"] | {"initContainers": [early]}})
        async with open_extender(server, tmp_path, confirm_seconds=10) as extender:
            found = await extender.ask("predicates", "a")
            assert (found["NodeNames"], found["Error"]) == (["n"], "")


async def test_a_choice_that_is_not_seen_again_is_not_answered(tmp_path: Path) -> None:
    """Nobody knows then what other replicas have chosen."""
    async with open_server() as server:
        server.put_node("n", capacity=capacity(1))
        server.put_pod("a", limit(100))
        async with open_extender(server, tmp_path, confirm_seconds=0.2) as extender:
            server.hold_watches = True
            found = await extender.ask("predicates", "a")
            assert "it was written and not seen again within 0.2 s" in found["Error"]
            server.release_watches()
            await extender.wait_seen("a")
            assert (await extender.ask("predicates", "a"))["NodeNames"] == ["n"]


async def test_nothing_is_answered_before_the_cluster_was_seen(tmp_path: Path) -> None:
    """An empty cluster would be a wrong answer; probes and people are told."""
    async with open_server() as server:
        server.put_node("n", capacity=capacity(1))
        server.put_pod("a", limit(100))
        server.refuse_lists.extend([500] * 100)
        async with open_extender(server, tmp_path, synced=False) as extender:
            for verb in ("predicates", "filter", "prioritize"):
                answer = await extender.call("POST", f"/scheduler/{verb}", b"{}")
                assert (answer.status, answer.headers["Retry-After"]) == (503, "1")
            assert (await extender.get("/readyz"))[0] == 503
            assert (await extender.get("/livez"))[0] == 200
            server.refuse_lists.clear()
            await extender.picture.wait_ready()
            assert await extender.get("/readyz") == (200, "[+] the cluster is seen\n")
            assert (await extender.ask("predicates", "a"))["NodeNames"] == ["n"]


async def test_a_watch_that_stays_away_makes_not_ready(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """It still answers, for what was promised is promised; another replica may see more."""
    monkeypatch.setattr("nodeagent.extender.service.SILENT_SECONDS", 0.0)
    async with open_server() as server:
        server.put_node("n", capacity=capacity(1))
        async with open_extender(server, tmp_path) as extender:
            assert (await extender.get("/readyz"))[0] == 200
            await server.stop()
            await wait_until(lambda: extender.picture.silent_seconds)
            status, text = await extender.get("/readyz")
            assert (status, text[:27]) == (503, "[-] a watch has been away f")
            await server.start()
            await wait_until(lambda: not extender.picture.silent_seconds)
            assert (await extender.get("/readyz"))[0] == 200


@pytest.mark.parametrize("verb", ["predicates", "filter"])
async def test_what_is_no_question_is_answered_with_the_reason(tmp_path: Path, verb: str) -> None:
    """In the answer itself, for kube-scheduler shows nothing else."""
    async with open_server() as server, open_extender(server, tmp_path) as extender:
        answer = await extender.call("POST", f"/scheduler/{verb}", b"{}")
        assert answer.status == 200
        assert json.loads(answer.body)["Error"].startswith("cannot read the request: it names no pod")


async def test_scores_of_no_question_are_refused(tmp_path: Path) -> None:
    """A list of scores has no place for words."""
    async with open_server() as server, open_extender(server, tmp_path) as extender:
        answer = await extender.call("POST", "/scheduler/prioritize", b"[]")
        assert answer.status == 400
        assert b"it is not ExtenderArgs" in answer.body


async def test_a_pod_is_explained(tmp_path: Path) -> None:
    """By name; what cannot be explained says why."""
    async with open_server() as server:
        server.put_node("n", capacity=capacity(1))
        server.put_pod("a", limit(30, 4), node="n", annotations={INDEX: "0"})
        server.put_pod("b", limit(30, 20))
        async with open_extender(server, tmp_path) as extender:
            status, text = await extender.get("/explain", pod="default/a")
            assert (status, json.loads(text)["state"]) == (200, "bound to n, on 0")
            assert json.loads(text)["fits"] == 1
            story = json.loads((await extender.get("/explain", pod="default/b"))[1])
            assert story["reasons"][0]["text"] == "1 GPU with 30 cores free, but none also with 5 GiB of memory"
            assert (await extender.get("/explain", pod="default/none"))[0] == 404
            assert (await extender.get("/explain", pod="a"))[0] == 400
            assert (await extender.get("/explain"))[0] == 400


async def test_shares_are_chosen_by_their_own_annotations(tmp_path: Path) -> None:
    """Of HAMi's names, on nodes that go by them."""
    async with open_server() as server:
        server.put_node("n", {"nvidia.com/gpu-fractions": publish(six(), profile="hami")})
        server.put_pod("a", {SHARE: "1", "nvidia.com/gpumem": "1000", "nvidia.com/gpucores": "30"}, {})
        async with open_extender(server, tmp_path) as extender:
            assert (await extender.ask("predicates", "a"))["NodeNames"] == ["n"]
            written = server.annotations("a")
            assert written["hami.io/vgpu-devices-to-allocate"] == f"{gpu_uuid(0)},NVIDIA,1000,30:;;"
            assert written["hami.io/vgpu-node"] == "n"


async def test_metrics_are_what_prometheus_reads(tmp_path: Path) -> None:
    async with open_server() as server:
        server.put_node("n", capacity=capacity(1))
        server.put_node("plain")
        server.put_pod("a", limit(30, 4))
        async with open_extender(server, tmp_path) as extender:
            extender.leads = True
            await extender.ask("predicates", "a")
            await extender.call("POST", "/scheduler/predicates", b"{}")
            status, text = await extender.get("/metrics")
            assert status == 200
            families = {family.name: family for family in text_string_to_metric_families(text)}
            samples = {
                (sample.name.removeprefix("nodeagent_extender_"), *sample.labels.values()): sample.value
                for family in families.values()
                for sample in family.samples
            }
            assert samples["nodes",] == 1
            assert samples["pods",] == 1
            assert samples["promises",] == 1
            assert samples["leader",] == 1
            assert samples["synced",] == 1
            assert samples["answers_total", "predicates", "placed"] == 1
            assert samples["answers_total", "predicates", "malformed"] == 1
            assert samples["answer_seconds_count", "predicates"] == 2
            assert samples["answer_seconds_bucket", "predicates", "+Inf"] == 2
            assert samples["api_requests_total", "PATCH", "200"] == 1
            assert all(family.documentation for family in families.values())
            assert all(name.startswith("nodeagent_extender_") for name in families)


async def test_what_there_is_can_be_looked_up(tmp_path: Path) -> None:
    """And the version, as the original tells it."""
    async with open_server() as server, open_extender(server, tmp_path) as extender:
        listed = json.loads((await extender.get("/"))[1])
        assert "POST /scheduler/predicates" in listed
        assert json.loads((await extender.get("/version"))[1])["version"]
