"""Calls of the kubelet about any claims, of which the API server says anything: each has its own answer or error."""

import json
from collections.abc import Sequence
from typing import Any, cast

import anyio
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from nodeagent.edge.kube.errors import ApiNotFound
from nodeagent.edge.kube.resource_claims import GROUP, KubeClaims
from nodeagent.edge.kubelet.claim_server import ClaimServer
from nodeagent.edge.kubelet.proto import dra_v1_pb2 as wire
from nodeagent.model.claims import ReadyClaims
from tests.component.claims.harness import World
from tests.property.components.test_claim_laws import JSON, PARAMETERS
from tests.property.core.test_bus_laws import run_virtually
from tests.support.claims import DRIVER, POD, POOL, gpu_config
from tests.support.examples import examples
from tests.support.virtual_time import FakeClock

SERVICE = "/k8s.io.kubelet.pkg.apis.dra.v1.DRAPlugin"
GOOD = ("ns", "good", "uid-good")
Asked = tuple[str, str, str]


class FakeClient:
    """An API server that has these claims; all else is nowhere."""

    def __init__(self) -> None:
        self.documents: dict[str, Any] = {}

    async def request(self, _method: str, path: str, *, attempted: str, in_turn: bool) -> Any:
        assert not in_turn
        await anyio.lowlevel.checkpoint()
        if path == GROUP:
            return {"versions": [{"version": "v1"}]}
        name = path.rpartition("/")[2]
        if name not in self.documents:
            missing = ApiNotFound(attempted, 404, "not found")
            missing.is_object = True
            raise missing
        return self.documents[name]


def make_document(asked: Asked, *devices: str, parameters: object = None) -> dict[str, Any]:
    """A claim as the scheduler leaves it."""
    results = [{"request": "gpu", "driver": DRIVER, "pool": POOL, "device": device} for device in devices]
    opaque = {"driver": DRIVER, "parameters": parameters}
    config = [] if parameters is None else [{"source": "FromClaim", "requests": [], "opaque": opaque}]
    return {
        "metadata": {"namespace": asked[0], "name": asked[1], "uid": asked[2]},
        "status": {
            "reservedFor": [{"resource": "pods", "name": POD.name, "uid": POD.uid}],
            "allocation": {"devices": {"results": results, "config": config}},
        },
    }


async def ask(documents: dict[str, Any], asked: Sequence[Asked]) -> dict[str, Any]:
    """What a kubelet is answered that asks for these claims and a good one, all of which it puts away at the end."""
    client = FakeClient()
    client.documents = documents | {GOOD[1]: make_document(GOOD, "gpu-3")}
    world = World(FakeClock())
    world.api = KubeClaims(client)  # type: ignore[assignment, arg-type]  # what it asks of either is there
    references = [wire.Claim(namespace=one[0], name=one[1], uid=one[2]) for one in (*asked, GOOD)]
    async with world.running():
        methods = ClaimServer(world.claims, DRIVER).methods()
        verbs = ("Prepare", "Unprepare")
        prepare, unprepare = (cast("Any", methods[f"{SERVICE}/Node{verb}Resources"]).handler for verb in verbs)
        sent = wire.NodePrepareResourcesRequest(claims=references).SerializeToString()
        answer = await prepare(wire.NodePrepareResourcesRequest.FromString(sent))
        told = dict(wire.NodePrepareResourcesResponse.FromString(answer.SerializeToString()).claims)
        await anyio.lowlevel.checkpoint()
        ready = {uid for uid, one in told.items() if not one.error}
        assert ready == set(world.prepared) == set(world.specs.files)
        ended = (await unprepare(wire.NodeUnprepareResourcesRequest(claims=references))).claims
        assert {uid: one.error for uid, one in ended.items()} == dict.fromkeys(told, "")
        await anyio.lowlevel.checkpoint()
        book = world.bus.latest(ReadyClaims)
        assert book is not None
        assert (dict(book.value.claims), world.specs.files) == ({}, {})
    return told


def check(told: dict[str, Any], asked: Sequence[Asked]) -> None:
    """Each has devices or a reason, and who asked for nothing wrong has what was asked for."""
    assert told.keys() == {one[2] for one in (*asked, GOOD)}
    assert all(bool(one.error) is not bool(one.devices) for one in told.values())
    assert [one.device_name for one in told[GOOD[2]].devices] == ["gpu-3"]


def spoil(document: Any, steps: Sequence[int], value: object) -> Any:
    """The document with something else at one of its places."""
    if not steps or not isinstance(document, dict | list) or not document:
        return value
    keys: Sequence[Any] = sorted(document) if isinstance(document, dict) else range(len(document))
    chosen = keys[steps[0] % len(keys)]
    copy = document.copy()
    copy[chosen] = spoil(document[chosen], steps[1:], value)
    return copy


WORDS = st.text(st.characters(codec="utf-8"), max_size=30)
ASKED = st.tuples(
    WORDS, st.sampled_from(["c1", "c2"]) | WORDS, st.sampled_from(["uid-1", "uid-2", "../uid", ""]) | WORDS
)
STEPS = st.lists(st.integers(0, 9), max_size=8)
DEVICES = st.lists(st.sampled_from(["gpu-0", "gpu-1", "gpu-2", "gpu-9", "../gpu-3"]), min_size=1, max_size=3)


@given(st.lists(st.tuples(ASKED, DEVICES, st.none() | PARAMETERS, STEPS, JSON), max_size=4))
@settings(max_examples=examples(100), deadline=None)
def test_whatever_is_asked_and_found_each_claim_has_its_own_answer(
    drawn: list[tuple[Asked, list[str], object, list[int], object]],
) -> None:
    """Over the kubelet's messages and the API server's documents; all of it is put away again."""
    asked = [one[0] for one in drawn if one[0][2] != GOOD[2]]
    documents = {
        each[1]: spoil(make_document(each, *devices, parameters=parameters), steps, value)
        for each, devices, parameters, steps, value in drawn
    }

    async def scenario() -> None:
        check(await ask(documents, asked), asked)

    run_virtually(scenario)


def nest(depth: int) -> Any:
    value: Any = 1
    for _ in range(depth):
        value = {"a": value}
    return value


def by_gpu(key: str, limit: str) -> dict[str, object]:
    return {"defaultPerDevicePinnedMemoryLimit": {key: limit}}


@pytest.mark.parametrize(
    ("devices", "parameters", "reason"),
    [
        ([f"gpu-{number}" for number in range(1000)], None, "has 1000 devices; 128 are possible"),
        (["gpu-0"] * 200, None, "has 200 devices; 128 are possible"),
        (["gpu-9"], None, "this node has no device gpu-9"),
        (["gpu-0"], gpu_config() | {"x": nest(900)}, 'unknown field "config'),
        (["gpu-0"], {"apiVersion": nest(900)}, "apiVersion is {'a': {'a'"),
        (["gpu-0"], gpu_config() | {"x" * 10_000: 1}, 'unknown field "config'),
        (["gpu-0"], {"apiVersion": "y" * 10_000}, "apiVersion is 'y"),
        (["gpu-0"], gpu_config({"strategy": "MPS", "mpsConfig": by_gpu("z" * 10_000, "1Mi")}), "names 'zzz"),
        (["gpu-0"], gpu_config({"strategy": "MPS", "mpsConfig": by_gpu("9" * 10_000, "1Mi")}), "names '999"),
        (["gpu-0"], gpu_config({"strategy": "MPS", "mpsConfig": by_gpu("z" * 10_000, "?")}), "Limit.zzz"),
        (["gpu-0"], gpu_config({"strategy": "MPS", "mpsConfig": by_gpu("0", "9" * 10_000)}), "Limit.0: '999"),
    ],
)
def test_a_hostile_claim_is_refused_alone_and_in_few_words(devices: list[str], parameters: object, reason: str) -> None:
    """However many devices it has, and however long or deep its configuration is."""
    hostile = ("ns", "hostile", "uid-hostile")
    document = make_document(hostile, *devices, parameters=parameters)
    assert json.loads(json.dumps(document)) == document

    async def scenario() -> None:
        told = await ask({hostile[1]: document}, [hostile])
        check(told, [hostile])
        assert reason in told[hostile[2]].error
        assert len(told[hostile[2]].error) < 400

    run_virtually(scenario)
