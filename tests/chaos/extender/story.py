"""One story of a cluster: pods come, are placed, start, are given other sizes and end, while much is late or lost.

What must hold after each step: no GPU of a node has more bound than it has. In a calm, when all that was held back has
arrived: each replica counts exactly what the nodes have bound and what was chosen besides, a pod that was sent to a
node has started there, and a pod that waits has no room by what the nodes say. Where nobody changed sizes and no agent
was late since the calm before, each container has the very GPUs that were chosen for it.
"""

import json
from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path
from random import Random
from typing import Any, Final

from nodeagent.extender.place_pod import place_pod
from nodeagent.model.errors import NoRoom
from nodeagent.rules.fractions.demands import read_demand
from nodeagent.rules.placement.space import CORES
from tests.chaos.extender.machines import VIEW, NodeMachine, read_limits
from tests.component.extender.harness import OpenExtender, open_extender
from tests.fakes.fleet import FakeFleet
from tests.support.scheduling import PROFILES, limit, make_pod
from tests.support.waiting import wait_until

Json = dict[str, Any]
Step = Callable[["ClusterStory", Random], Awaitable[None]]
CHOSEN, INDEX, UUID = (f"tencent.com/predicate-{name}" for name in ("node", "gpu-idx-0", "gpu-uuid-0"))
CALM_EVERY: Final = 50
NODES: Final = 3
LIVING_MAX: Final = 90


class Violated(Exception):
    """Something did not hold."""


class ClusterStory:
    """The cluster, and what happens in it."""

    def __init__(self, server: FakeFleet, directory: Path, replicas: int) -> None:
        self.server, self._directory, self._count = server, directory, replicas
        self.replicas: list[OpenExtender] = []
        self._stacks: list[AsyncExitStack] = []
        self.nodes = {f"n{number}": NodeMachine(server, f"n{number}") for number in range(NODES)}
        self.waiting: list[str] = []
        """Pods that the scheduler has to place, by name."""
        self.unstarted: dict[str, str] = {}
        """By name of pods that are bound, the GPUs chosen for them when they were."""
        self.is_disturbed = False
        """Whether a node may have less, or other GPUs, free than was chosen by, since the last calm."""
        self.did: Counter[str] = Counter()
        self._last = 0
        self._held = 0

    @asynccontextmanager
    async def running(self) -> AsyncIterator["ClusterStory"]:
        try:
            for _ in range(self._count):
                await self._open()
            yield self
        finally:
            self.server.release_watches()
            while self._stacks:
                await self._stacks.pop().aclose()

    async def _open(self) -> None:
        stack, directory = AsyncExitStack(), self._directory / str(len(self._stacks))
        directory.mkdir(exist_ok=True)
        confirm = 0.2 if self._count > 1 else None
        opened = open_extender(self.server, directory, confirm_seconds=confirm)
        self.replicas.append(await stack.enter_async_context(opened))
        self._stacks.append(stack)

    async def restart(self, _chance: Random) -> None:
        """The newest replica is killed and started; a start waits for lists, not for watches."""
        self.replicas.pop()
        await self._stacks.pop().aclose()
        await self._open()

    @property
    def pods(self) -> dict[str, Json]:
        return self.server.objects["pods"]

    @property
    def living(self) -> dict[str, Json]:
        """By uid, those that have not finished."""
        return {
            each["metadata"]["uid"]: each for each in self.pods.values() if each["status"].get("phase") != "Succeeded"
        }

    def find_node(self, name: str) -> NodeMachine:
        return self.nodes[self.pods[name]["spec"]["nodeName"]]

    def change(self, name: str, **changes: Any) -> None:
        self.server.put("pods", name, self.pods[name] | changes)

    def annotate(self, name: str, annotations: Mapping[str, str]) -> None:
        metadata = self.pods[name]["metadata"]
        self.change(name, metadata=metadata | {"annotations": {**metadata["annotations"], **annotations}})

    async def go_on(self, step: Step, chance: Random) -> None:
        """One step, and what must hold after it."""
        await step(self, chance)
        self.did[step.__name__] += 1
        if self._held:
            self._held -= 1
            if not self._held:
                self.server.release_watches()
        for node in self.nodes.values():
            if max(node.count_most()) > CORES:
                raise Violated(f"{node.name} has {node.count_most()} hundredths of a GPU bound")

    def hold_watches(self, steps: int) -> None:
        self.server.hold_watches = True
        self._held = max(self._held, steps)

    # The scheduler.

    def create(self, chance: Random) -> None:
        if len(self.living) < LIVING_MAX:
            self._last += 1
            cores = chance.choice((5, 10, 20, 30, 45, 50, 60, 70, 90, 100, 200))
            self.server.put_pod(f"p{self._last}", limit(cores, 0 if cores >= CORES else chance.randrange(1, 64)))
            self.waiting.append(f"p{self._last}")

    async def place(self, name: str, chance: Random, *, seen: Json | None = None) -> bool:
        """Ask for a pod, and bind it; whether it is bound. With `seen` the scheduler's own watch is late."""
        body = json.dumps({"Pod": seen or self.pods[name], "NodeNames": list(self.nodes), "Nodes": None}).encode()
        answer = await chance.choice(self.replicas).call("POST", "/scheduler/predicates", body)
        found = json.loads(answer.body) if answer.status == 200 else {"Error": f"answered {answer.status}"}
        if found["Error"] or not found["NodeNames"]:
            self.did["not answered" if found["Error"] else "refused"] += 1
            return False
        if self.pods[name]["spec"].get("nodeName"):
            # The API server refuses to bind a pod twice.
            self.did["bound already"] += 1
            return False
        if chance.random() < 0.1:
            self.did["not bound"] += 1
            return False
        node = str(found["NodeNames"][0])
        unbound = self.pods[name]
        self.bind(name, node)
        if chance.random() < 0.1:
            self.did["bound unheard"] += 1
            await self.place(name, chance, seen=unbound)
        return True

    def bind(self, name: str, node: str) -> None:
        notes = self.pods[name]["metadata"]["annotations"]
        if notes.get(CHOSEN) != node:
            raise Violated(f"{name} was sent to {node}, and says {notes.get(CHOSEN)}")
        self.change(name, spec=self.pods[name]["spec"] | {"nodeName": node})
        self.waiting.remove(name)
        self.unstarted[name] = notes[UUID]
        self.did["bound"] += 1

    # The nodes.

    def start(self, name: str, *, knows_pod: bool = True) -> bool:
        """The kubelet has a bound pod's container started; whether it has."""
        node = self.find_node(name)
        node.give_back(self.living)
        try:
            binding = node.start(self.pods[name], knows_pod=knows_pod)
        except NoRoom as error:
            if not self.is_disturbed:
                raise Violated(f"{name} was sent to {node.name}, which has no room: {error}") from error
            self.did["no room"] += 1
            return False
        chosen = set(self.unstarted.pop(name).split(","))
        given = {str(part.gpu) for part in binding.parts}
        if given != chosen:
            self.did["elsewhere"] += 1
            if not self.is_disturbed:
                raise Violated(f"{name} has {sorted(given)} of {node.name}, chosen were {sorted(chosen)}")
        self.did["started"] += 1
        return True

    def look(self, node: NodeMachine) -> None:
        """The node's agent gives back, says what is bound, and corrects pods."""
        if node.is_down:
            return
        node.give_back(self.living)
        node.tell()
        for uid, annotations in node.list_corrections(self.living).items():
            name = self.living[uid]["metadata"]["name"]
            self.did["corrected"] += 1
            self.annotate(name, annotations)

    # The calm.

    async def calm(self) -> None:
        """All that was held back arrives; what must hold then is looked at, and what cannot start is taken away."""
        self.server.refuse.clear()
        self._held = 0
        self.server.release_watches()
        for name in list(self.unstarted):
            if not self.start(name):
                self.end(name)
        for node in self.nodes.values():
            node.is_down = False
            self.look(node)
        await self._see_all()
        await self._place_all()
        for name in list(self.unstarted):
            if not self.start(name):
                raise Violated(f"{name} was sent to a node without room in a calm")
        for node in self.nodes.values():
            self.look(node)
        await self._see_all()
        self._check_counts()
        self.did["calm"] += 1
        for name in list(self.waiting):
            self.end(name)
        self.is_disturbed = False

    async def _place_all(self) -> None:
        """Ask for all that wait, and see that those which are refused have no room."""
        for name in list(self.waiting):
            await self._place_calmly(name)
        # Once more: what was chosen for one that was asked about later was in the way of those before it.
        for name in list(self.waiting):
            if not await self._place_calmly(name):
                self._check_no_room(name)

    async def _place_calmly(self, name: str) -> bool:
        """Ask until there is an answer, and bind; whether it is bound."""
        problem = ""
        for _ in range(5):
            found = await self.replicas[-1].ask("predicates", name)
            problem = found["Error"]
            if not problem:
                for node in found["NodeNames"]:
                    self.bind(name, node)
                await self._see_all()
                return bool(found["NodeNames"])
            await self._see_all()
        raise Violated(f"{name} is not answered in a calm: {problem}")

    def _check_no_room(self, name: str) -> None:
        """What is refused has no room by what the nodes have."""
        cores, blocks = read_limits(self.pods[name])
        demand = read_demand(PROFILES, make_pod(name, limit(cores, blocks)))
        assert demand is not None
        for node in self.nodes.values():
            space = node.space
            for other in self.unstarted:
                if self.find_node(other) is node:
                    space = space.occupy(self._list_chosen(other))
            if place_pod(space, demand).fits:
                raise Violated(f"{name} of {cores} cores and {blocks} blocks has room on {node.name}")

    def _list_chosen(self, name: str) -> list[Any]:
        """The parts that a pod which has not started takes by its choice."""
        cores, blocks = read_limits(self.pods[name])
        demand = read_demand(PROFILES, make_pod(name, limit(cores, blocks)))
        assert demand is not None
        chosen = self.unstarted[name].split(",")
        rooms = [room for room in VIEW.empty.rooms if room.gpu in chosen]
        return [demand.containers[0].demand.share_of(room) for room in rooms]

    async def _see_all(self) -> None:
        """Until each replica has seen each pod and each node as the API server has them."""

        def is_seen(replica: OpenExtender) -> bool:
            nodes = {name: found["metadata"]["annotations"] for name, found in self.server.objects["nodes"].items()}
            known = {name: entry.said for name, entry in replica.cluster.nodes.items()}
            versions = {uid: found["metadata"]["resourceVersion"] for uid, found in self.living.items()}
            return (
                replica.picture.silent_seconds == 0
                and all(name in known and known[name][0] == said for name, said in nodes.items())  # type: ignore[index]
                and {uid: pod.version for uid, pod in replica.cluster.pods.items()} == versions
            )

        for replica in self.replicas:
            await wait_until(lambda replica=replica: is_seen(replica))  # type: ignore[misc]

    def _check_counts(self) -> None:
        """Each replica's account is what is bound, and what is chosen besides."""
        for node in self.nodes.values():
            for number, replica in enumerate(self.replicas):
                account = replica.cluster.find_space(node.name)
                if account is None:
                    raise Violated(f"replica {number} does not know {node.name}")
                told = [(room.cores_used, room.memory_used, room.users) for room in account.space.rooms]
                true = [(room.cores_used, room.memory_used, room.users) for room in node.space.rooms]
                if told != true:
                    raise Violated(f"replica {number} counts {told} on {node.name}, bound are {true}")

    def end(self, name: str) -> None:
        """A pod is deleted, wherever it is."""
        self.server.drop("pods", name)
        if name in self.waiting:
            self.waiting.remove(name)
        self.unstarted.pop(name, None)
