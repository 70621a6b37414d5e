"""Questions that kube-scheduler would not ask: about made-up pods, made-up sizes, and by verbs that it does not use."""

import json
from pathlib import Path

from nodeagent.config.sections.extender import VERBS
from nodeagent.edge.http.messages import Response
from nodeagent.edge.http.queue import RequestQueue
from nodeagent.edge.http.routes import Match, Routes
from tests.component.extender.harness import capacity, open_extender, open_server
from tests.support.scheduling import limit

INDEX = "tencent.com/predicate-gpu-idx-0"


async def test_a_pod_that_the_api_server_does_not_know_holds_nothing(tmp_path: Path) -> None:
    """Made-up questions would keep whole nodes from those who wait for them."""
    async with open_server() as server:
        server.put_node("n", capacity=capacity(1))
        server.put_pod("real", limit(100))
        async with open_extender(server, tmp_path) as extender:
            made_up = server.objects["pods"]["real"] | {
                "metadata": {"name": "made-up", "namespace": "default", "uid": "none"}
            }
            body = json.dumps({"Pod": made_up, "NodeNames": ["n"]}).encode()
            for verb in ("predicates", "filter"):
                told = json.loads((await extender.call("POST", f"/scheduler/{verb}", body)).body)
                assert (
                    told["Error"] == "the API server has told of no pod default/made-up yet: the scheduler asks again"
                )
            assert not extender.cluster.holds
            assert server.requests["patch pods"] == 0
            assert await extender.schedule("real") == "n"


async def test_a_question_is_about_the_pod_as_the_api_server_has_it(tmp_path: Path) -> None:
    """Not about the size or the name that somebody else says it has, nor about one that it could never have."""
    async with open_server() as server:
        server.put_node("n", capacity=capacity(2))
        server.put_pod("a", limit(30, 4))
        async with open_extender(server, tmp_path) as extender:
            real = server.objects["pods"]["a"]
            for limits in (limit(200), limit(150), {"cpu": "1"}):
                spec = {"containers": [{"name": "c0", "resources": {"limits": dict(limits)}}]}
                body = json.dumps({"Pod": real | {"spec": spec}, "NodeNames": ["n"]}).encode()
                told = json.loads((await extender.call("POST", "/scheduler/predicates", body)).body)
                assert (told["NodeNames"], told["Error"]) == (["n"], "")
                await extender.wait_seen("a")
                assert server.annotations("a")[INDEX] == "0"
            other = real | {"metadata": real["metadata"] | {"name": "other"}}
            body = json.dumps({"Pod": other, "NodeNames": ["n"]}).encode()
            told = json.loads((await extender.call("POST", "/scheduler/predicates", body)).body)
            assert "told of no pod default/other" in told["Error"]


async def test_a_question_waits_for_a_pod_that_is_seen_a_moment_later(tmp_path: Path) -> None:
    """The scheduler's own watch may be ahead."""
    async with open_server() as server:
        server.put_node("n", capacity=capacity(2))
        async with open_extender(server, tmp_path) as extender:
            for number in range(5):
                server.put_pod(f"p{number}", limit(10, 1))
                assert (await extender.ask("predicates", f"p{number}"))["NodeNames"] == ["n"]


async def test_verbs_that_the_scheduler_is_not_told_of_are_off(tmp_path: Path) -> None:
    """They get 404, and are not on the list of what there is."""
    async with open_server() as server, open_extender(server, tmp_path) as extender:
        routes = Routes(extender.service.routes(RequestQueue(lambda: 1, wait_seconds=1), VERBS[:1]))
        assert isinstance(routes.find("POST", "/scheduler/predicates"), Match)
        for verb in ("filter", "prioritize"):
            refused = routes.find("POST", f"/scheduler/{verb}")
            assert isinstance(refused, Response)
            assert refused.status == 404
        listed = json.loads((await extender.get("/"))[1])
        assert [key for key in listed if key.startswith("POST")] == ["POST /scheduler/predicates"]
