"""Nodes that start containers by the agent's own decisions, and say so when they get round to it.

Owns nothing of what is decided: what a container gets, how it is corrected and what the node says are the agent's code.
"""

from collections.abc import Iterable, Mapping
from random import Random
from typing import Any, Final

from msgspec.structs import replace

from nodeagent.components.fractions.bind import Start, change_fractions, choose, plan_correction
from nodeagent.components.fractions.decide import plan_summary
from nodeagent.model.allocation import PodIdentity
from nodeagent.model.fractions import ContainerRequest, PodRequest
from nodeagent.model.journal import Binding, FractionTable
from nodeagent.rules.fractions.bound import BOUND_ANNOTATION, render_bound
from nodeagent.rules.fractions.pairing import Caller
from nodeagent.rules.fractions.published import ANNOTATION
from nodeagent.rules.placement.space import CORES, Space
from tests.fakes.fleet import FakeFleet
from tests.support.fractions import make_promise, make_view
from tests.support.journals import CORE, MEMORY
from tests.support.placement import eight
from tests.support.scheduling import publish

Json = dict[str, Any]
CONTAINER: Final = "c0"
VIEW: Final = make_view(eight())
PUBLISHED: Final = publish(eight())


def identify(document: Json) -> PodIdentity:
    metadata = document["metadata"]
    return PodIdentity(namespace=metadata["namespace"], name=metadata["name"], uid=metadata["uid"])


def read_request(document: Json) -> PodRequest:
    """The pod as an agent that follows pods has it."""
    notes = document["metadata"].get("annotations") or {}
    return PodRequest(pod=identify(document), annotations=notes, containers=(ContainerRequest(name=CONTAINER),))


def read_limits(document: Json) -> tuple[int, int]:
    """Cores and blocks."""
    limits = document["spec"]["containers"][0]["resources"]["limits"]
    return int(limits[CORE]), int(limits.get(MEMORY, "0"))


class NodeMachine:
    """One node of eight GPUs."""

    def __init__(self, server: FakeFleet, name: str) -> None:
        self._server, self.name = server, name
        self.bindings: dict[int, Binding] = {}
        self._last = 0
        self.is_down = False
        """Whether nobody says anything: the agent is being restarted, or cannot reach the API server."""
        self._said = ""
        server.put_node(name, {ANNOTATION: PUBLISHED})

    @property
    def uids(self) -> set[str]:
        return {binding.pod.uid for binding in self.bindings.values()}

    @property
    def space(self) -> Space:
        """What is free by what is bound."""
        return plan_summary(VIEW, FractionTable(bindings=self.bindings))

    def start(self, document: Json, *, knows_pod: bool) -> Binding:
        """A container starts; the agent may not have been told of its pod yet.

        Raises:
            NoRoom: it has to wait.
        """
        cores, blocks = read_limits(document)
        pod = identify(document)
        promised = [make_promise(1, [f"{pod.uid}-{n}" for n in range(cores)])]
        if blocks:
            promised.append(make_promise(2, [f"{pod.uid}-m{n}" for n in range(blocks)], MEMORY))
        ids = [each.devices for each in promised]
        caller = Caller(pod=pod, containers=(CONTAINER,), cores=ids[0], memory=ids[1] if blocks else ())
        table = FractionTable(reservations={each.number: each for each in promised}, bindings=self.bindings)
        chosen = choose(Start(caller, read_request(document) if knows_pod else None), VIEW, table, 0.0)
        self._last += 1
        binding = self.bindings[self._last] = replace(chosen.binding, number=self._last, reservations=())
        return binding

    def resize(self, chance: Random) -> bool:
        """A person gives a running container another size, within what its GPU has."""
        able = [each for each in self.bindings.values() if all(part.cores < CORES for part in each.parts)]
        if not able:
            return False
        before = chance.choice(able)
        changed = change_fractions(before, chance.randrange(1, CORES), chance.randrange(1, 64) << 28)
        space = self.space.release(before.parts).occupy(changed.parts)
        if any(room.cores_used > CORES or room.memory_used > room.memory_bytes for room in space.rooms):
            return False
        self.bindings[before.number] = changed
        return True

    def give_back(self, living: Iterable[str]) -> None:
        """What pods had that are gone or have finished is free again."""
        uids = set(living)
        self.bindings = {number: each for number, each in self.bindings.items() if each.pod.uid in uids}

    def tell(self) -> None:
        """Say on the node what is bound, where that is something else than before."""
        text = render_bound(self.bindings.values(), VIEW.inventory).text
        if text != self._said:
            self._said = text
            said = {BOUND_ANNOTATION: text} if text else {}
            self._server.put_node(self.name, {ANNOTATION: PUBLISHED, **said})

    def has_told(self, uid: str) -> bool:
        """Whether the node has said what this pod has."""
        return uid in self._said

    def list_corrections(self, pods: Mapping[str, Json]) -> dict[str, Mapping[str, str]]:
        """By the pod's uid what it is to say instead of a choice that was not obeyed."""
        found: dict[str, Mapping[str, str]] = {}
        for binding in self.bindings.values():
            document = pods.get(binding.pod.uid)
            correction = plan_correction(VIEW, read_request(document), binding) if document is not None else None
            if correction is not None:
                found[binding.pod.uid] = correction.annotations
        return found

    def count_most(self) -> tuple[int, int]:
        """Cores and memory, in hundredths, of the GPU of which the most is bound."""
        rooms = self.space.rooms
        return max(room.cores_used for room in rooms), max(
            100 * room.memory_used // room.memory_bytes for room in rooms
        )
