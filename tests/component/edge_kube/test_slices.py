"""The slices of this node, written to and followed from a server on loopback."""

import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from functools import partial
from pathlib import Path
from random import Random

import pytest

from nodeagent.edge.kube.errors import ApiConflict, ApiNotFound, ApiUnreachable, NodeMissing
from nodeagent.edge.kube.slices import KubeDeviceClasses, KubeSlices
from nodeagent.model.slices import DeviceClass, SliceContent, SliceDevice, SlicePool
from tests.component.edge_kube.harness import open_client, take
from tests.fakes.apiserver import FakeApiServer

POOL = SlicePool(driver="gpu.nvidia.com", node="node-1")
PATH = "/apis/resource.k8s.io/v1/resourceslices"
ONE, OTHER = (SliceContent(devices=(SliceDevice(name=name),)) for name in ("gpu-0", "gpu-1"))


@asynccontextmanager
async def open_slices(tmp_path: Path) -> AsyncIterator[tuple[FakeApiServer, KubeSlices]]:
    async with open_client(tmp_path) as (server, client):
        yield server, KubeSlices(client, POOL, Random(1), silence_seconds=20)


def line(kind: str, content: object) -> bytes:
    return json.dumps({"type": kind, "object": content}).encode() + b"\n"


async def test_a_slice_is_made_changed_and_taken_away(tmp_path: Path) -> None:
    """Each answer is what the server has then."""
    async with open_slices(tmp_path) as (server, slices):
        made = await slices.create("s", ONE, (1, 1), "uid-of-node")
        assert (made.content, made.generation, made.is_owned) == (ONE, 1, True)
        changed = await slices.update(made, OTHER, (2, 1), "uid-of-node")
        assert (changed.content, changed.generation, changed.uid) == (OTHER, 2, made.uid)
        await slices.delete(changed)
        assert server.slices == {}
        assert server.writes == [("POST", PATH), ("PUT", f"{PATH}/s"), ("DELETE", f"{PATH}/s")]


async def test_who_comes_second_is_told_so(tmp_path: Path) -> None:
    """A change that was made to another version is none; a slice that is gone is gone."""
    async with open_slices(tmp_path) as (server, slices):
        made = await slices.create("s", ONE, (1, 1), "u")
        with pytest.raises(ApiConflict):
            await slices.create("s", ONE, (1, 1), "u")
        await slices.update(made, OTHER, (1, 1), "u")
        with pytest.raises(ApiConflict):
            await slices.update(made, OTHER, (1, 1), "u")
        with pytest.raises(ApiConflict):
            await slices.delete(made)
        server.slices.clear()
        await slices.delete(made)
        with pytest.raises(ApiNotFound):
            await slices.update(made, OTHER, (1, 1), "u")


async def test_who_stands_in_the_place_of_the_server_takes_nothing_away(tmp_path: Path) -> None:
    """A slice is gone and a node is missing when the API server says so, not when a proxy knows no such page."""
    async with open_slices(tmp_path) as (server, slices):
        made = await slices.create("s", ONE, (1, 1), "u")
        for ask in (partial(slices.delete, made), slices.read_node_uid):
            server.answer(404, body=b"<html>no such host</html>")
            with pytest.raises(ApiUnreachable, match="another one answers"):
                await ask()
        assert list(server.slices) == ["s"]


async def test_slices_are_listed_and_then_followed(tmp_path: Path) -> None:
    """Those of this driver on this node alone; each table is whole, and a gap ends it."""
    async with open_slices(tmp_path) as (server, slices):
        await slices.create("s", ONE, (1, 1), "u")
        document = server.slices["s"]
        other = document | {"metadata": document["metadata"] | {"name": "t", "resourceVersion": "900"}}
        server.watch_lines.extend(
            [line("ADDED", other), line("DELETED", document), line("ERROR", {"code": 410, "message": "too old"})]
        )
        assert [sorted(table) for table in await take(slices.follow_slices(), 4)] == [["s"], ["s", "t"], ["t"]]


async def test_an_answer_that_is_no_slice_is_an_error(tmp_path: Path) -> None:
    """Half an object must not be taken for an empty one."""
    async with open_slices(tmp_path) as (server, slices):
        server.slices["s"] = {"metadata": {"name": "s"}, "spec": {"driver": POOL.driver, "nodeName": POOL.node}}
        with pytest.raises(ApiUnreachable, match="makes no sense"):
            await take(slices.follow_slices(), 1)


async def test_the_node_that_slices_go_with_is_asked_for(tmp_path: Path) -> None:
    """By its name; one that is not there (yet) is told by its name too."""
    async with open_client(tmp_path) as (server, client):
        server.add_node("node-1")
        assert await KubeSlices(client, POOL, Random(1)).read_node_uid() == "uid-of-node-1"
        other = KubeSlices(client, SlicePool(driver=POOL.driver, node="other"), Random(1))
        with pytest.raises(NodeMissing, match="other"):
            await other.read_node_uid()
        server.nodes["node-1"] = {}
        with pytest.raises(ApiUnreachable, match="makes no sense"):
            await KubeSlices(client, POOL, Random(1)).read_node_uid()


async def test_a_class_is_read_as_far_as_it_goes(tmp_path: Path) -> None:
    """A selector of a kind that is not known says nothing of a driver; a class with nothing has no resource."""
    whole = {
        "metadata": {"name": "gpu.nvidia.com"},
        "spec": {
            "extendedResourceName": "nvidia.com/gpu",
            "selectors": [{"cel": {"expression": "true"}}, {"other": {}}],
        },
    }
    listing = {"metadata": {"resourceVersion": "7"}, "items": [whole, {"metadata": {"name": "bare"}}]}
    async with open_client(tmp_path) as (server, client):
        server.answer(422)  # streams no lists
        server.answer(200, body=json.dumps(listing).encode())
        (classes,) = await take(KubeDeviceClasses(client, Random(1), silence_seconds=20).follow_classes(), 1)
        assert classes == {
            "gpu.nvidia.com": DeviceClass(name="gpu.nvidia.com", resource="nvidia.com/gpu", selectors=("true", "")),
            "bare": DeviceClass(name="bare"),
        }


async def test_a_class_of_no_sense_is_an_error_that_is_caught(tmp_path: Path) -> None:
    async with open_client(tmp_path) as (server, client):
        server.answer(422)  # streams no lists
        server.answer(200, body=json.dumps({"metadata": {"resourceVersion": "7"}, "items": [{"spec": []}]}).encode())
        with pytest.raises(ApiUnreachable, match="read the device classes"):
            await take(KubeDeviceClasses(client, Random(1), silence_seconds=20).follow_classes(), 1)
