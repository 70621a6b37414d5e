"""Three hundred pods, twenty-one nodes and two replicas while all goes wrong that can: nothing is given twice.

The scheduler is made up and the API server small; the replicas, their watches and their writes are the real ones.
"""

from collections import defaultdict
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path
from random import Random
from typing import Any

import pytest

from tests.component.extender.harness import OpenExtender, open_extender, open_server
from tests.fakes.fleet import FakeFleet
from tests.support.placement import eight
from tests.support.scheduling import limit, publish
from tests.support.waiting import wait_until

BLOCKS = 128
ATTEMPTS = 6
INDEX, CHOSEN = "tencent.com/predicate-gpu-idx-0", "tencent.com/predicate-node"


def draw_limits(chance: Random) -> Mapping[str, str]:
    cores = chance.choice((5, 10, 20, 30, 50, 70, 90, 100, 200, 400))
    return limit(cores, 0 if cores >= 100 else chance.randrange(1, BLOCKS // 2))


def check_sums(server: FakeFleet, chosen: Mapping[str, Any]) -> None:
    """By the annotations of the pods that are bound, or that a replica has said are placed."""
    cores: defaultdict[tuple[str, str], int] = defaultdict(int)
    blocks: defaultdict[tuple[str, str], int] = defaultdict(int)
    for name, pod in server.objects["pods"].items():
        node = pod["spec"].get("nodeName") or chosen.get(name)
        if not node:
            continue
        notes = pod["metadata"]["annotations"]
        assert notes[CHOSEN] == node
        limits = pod["spec"]["containers"][0]["resources"]["limits"]
        asked = int(limits["tencent.com/vcuda-core"])
        gpus = notes[INDEX].split(",")
        assert len(set(gpus)) == max(1, asked // 100)
        for gpu in gpus:
            cores[node, gpu] += min(asked, 100)
            blocks[node, gpu] += BLOCKS if asked >= 100 else int(limits["tencent.com/vcuda-memory"])
    assert max(cores.values(), default=0) <= 100
    assert max(blocks.values(), default=0) <= BLOCKS


class Story:
    """One scheduler's queue, and what happens beside it."""

    def __init__(self, server: FakeFleet, directory: Path, chance: Random, keys: Sequence[bytes]) -> None:
        self.server, self.directory, self.chance, self.keys = server, directory, chance, keys
        self.replicas: list[OpenExtender] = []
        self.bound = self.refused = self.errors = 0
        self._stacks: list[AsyncExitStack] = []

    @asynccontextmanager
    async def running(self) -> AsyncIterator["Story"]:
        for number in range(2):
            (self.directory / str(number)).mkdir()
        try:
            for _ in range(2):
                await self._start()
            yield self
        finally:
            while self._stacks:
                await self._stacks.pop().aclose()

    async def _start(self) -> None:
        stack = AsyncExitStack()
        directory = self.directory / str(len(self._stacks))
        self.replicas.append(
            await stack.enter_async_context(open_extender(self.server, directory, confirm_seconds=2, keys=self.keys))
        )
        self._stacks.append(stack)

    async def restart_newest(self) -> None:
        """As after a kill: what it had promised in memory alone is gone with it."""
        self.replicas.pop()
        await self._stacks.pop().aclose()
        await self._start()

    async def schedule(self, pod: str) -> bool:
        """Ask until there is an answer, and bind."""
        for _ in range(ATTEMPTS):
            if pod not in self.server.objects["pods"]:
                return True
            found = await self.chance.choice(self.replicas).ask("predicates", pod)
            if found["Error"]:
                self.errors += 1
                continue
            if not found["NodeNames"]:
                self.refused += 1
                return False
            (node,) = found["NodeNames"]
            check_sums(self.server, {pod: node})
            if self.chance.random() < 0.1:
                continue  # the binding failed; it is asked about again
            document = self.server.objects["pods"].get(pod)
            if document is not None:
                self.server.put("pods", pod, document | {"spec": document["spec"] | {"nodeName": node}})
                self.bound += 1
            return True
        return False

    async def happen(self) -> None:
        what = self.chance.randrange(12)
        pods = self.server.objects["pods"]
        if what == 0:
            await self.restart_newest()
        elif what == 1:
            await self.server.stop()
            await self.server.start()
        elif what in (2, 3, 4):
            self.server.refuse.append(self.chance.choice((409, 500, 503)))
        elif what in (5, 6) and pods:
            self.server.drop("pods", self.chance.choice(list(pods)))
        elif what == 7 and pods:
            name = self.chance.choice(list(pods))
            self.server.put("pods", name, pods[name] | {"status": {"phase": "Succeeded"}})
            self.server.drop("pods", name)
        elif what == 8:
            self.server.drop_watches()

    def drop_node(self, node: str) -> None:
        self.server.drop("nodes", node)
        for pod in [name for name, found in self.server.objects["pods"].items() if is_on(found, node)]:
            self.server.drop("pods", pod)

    async def settle(self, waiting: list[str]) -> None:
        """All is well again: who waits is asked about once more, and who then still waits has no room anywhere."""
        self.server.refuse.clear()
        for replica in self.replicas:
            await wait_until(lambda replica=replica: replica.picture.silent_seconds == 0)  # type: ignore[misc]
        for name in waiting:
            await self.schedule(name)
        check_sums(self.server, {})
        left = [name for name, pod in self.server.objects["pods"].items() if not pod["spec"].get("nodeName")]
        for replica in self.replicas:
            for name in left:
                await replica.wait_seen(name)
                assert (await replica.ask("predicates", name))["NodeNames"] == []


@pytest.mark.parametrize(
    ("seed", "nodes", "pods", "keys"),
    [
        pytest.param(1, 5, 80, [], marks=pytest.mark.slow),
        pytest.param(3, 5, 80, [b"k" * 32], marks=pytest.mark.slow),
        pytest.param(2, 21, 300, [b"k" * 32], marks=pytest.mark.nightly),
    ],
)
@pytest.mark.long
async def test_whatever_happens_nothing_is_given_twice(
    tmp_path: Path, seed: int, nodes: int, pods: int, keys: list[bytes]
) -> None:
    """And in the end every pod that was refused has no room, by the word of both replicas."""
    chance = Random(seed)
    async with open_server() as server:
        for number in range(nodes):
            server.put_node(f"n{number:02}", {"nvidia.com/gpu-fractions": publish(eight())})
        async with Story(server, tmp_path, chance, keys).running() as story:
            waiting: list[str] = []
            for number in range(pods):
                name = f"p{number:03}"
                server.put_pod(name, draw_limits(chance))
                if not await story.schedule(name):
                    waiting.append(name)
                if chance.random() < 0.2:
                    await story.happen()
                if number == pods // 2:
                    story.drop_node("n04")
            await story.settle(waiting)
            assert (story.bound > pods // 3, story.refused > 0, story.errors > 0) == (True, True, True)


def is_on(pod: Mapping[str, Any], node: str) -> bool:
    return bool(pod["spec"].get("nodeName") == node)
