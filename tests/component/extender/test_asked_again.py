"""Pods that are asked about again: what was chosen for them before counts as long as it may be true, and no longer."""

import json
from pathlib import Path

import pytest

from tests.component.extender.harness import capacity, open_extender, open_server
from tests.support.placement import six
from tests.support.scheduling import limit, publish

INDEX, UUID = "tencent.com/predicate-gpu-idx-0", "tencent.com/predicate-gpu-uuid-0"


@pytest.mark.parametrize("names", [["n"], ["m"], ["full"]], ids=["another node", "the same node", "no room"])
async def test_a_place_that_a_pod_was_bound_to_unseen_is_not_given_again(tmp_path: Path, names: list[str]) -> None:
    """The scheduler bound a pod and never heard so, and the watch is late: the place stays taken."""
    async with open_server() as server:
        for name in ("m", "n", "full"):
            server.put_node(name, capacity=capacity(1))
        server.put_pod("c", limit(100), node="full", annotations={INDEX: "0"})
        for name in "ab":
            server.put_pod(name, limit(100))
        async with open_extender(server, tmp_path) as extender:
            assert (await extender.ask("predicates", "a", ["m"]))["NodeNames"] == ["m"]
            await extender.wait_seen("a")
            unbound = server.objects["pods"]["a"]
            server.hold_watches = True
            server.put_pod("a", limit(100), node="m", annotations=server.annotations("a"))
            body = json.dumps({"Pod": unbound, "NodeNames": names}).encode()
            found = json.loads((await extender.call("POST", "/scheduler/predicates", body)).body)
            assert not found["NodeNames"]
            assert ("answered 409" in found["Error"]) == (names != ["full"])
            assert (await extender.ask("predicates", "b", ["m"]))["NodeNames"] == []
            assert (await extender.ask("predicates", "b", ["n"]))["NodeNames"] == ["n"]
            assert server.annotations("a")["tencent.com/predicate-node"] == "m"


async def test_keys_of_an_earlier_choice_that_are_not_used_are_taken_away(tmp_path: Path) -> None:
    """A node of the original knows no UUIDs, and would believe those of the node before."""
    async with open_server() as server:
        server.put_node("ours", {"nvidia.com/gpu-fractions": publish(six())})
        server.put_node("plain", capacity=capacity(1))
        server.put_pod("a", limit(30, 4), annotations={"mine": "1"})
        async with open_extender(server, tmp_path) as extender:
            await extender.ask("predicates", "a", ["ours"])
            assert UUID in server.annotations("a")
            server.hold_watches = True
            await extender.ask("predicates", "a", ["plain"])
            written = server.annotations("a")
            assert (written["tencent.com/predicate-node"], written["mine"]) == ("plain", "1")
            assert UUID not in written
