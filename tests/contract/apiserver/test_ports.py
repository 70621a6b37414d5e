"""The ports behind which components have the API server: the stand-ins of components, and the agent's own client."""

from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AbstractAsyncContextManager, aclosing, asynccontextmanager
from random import Random
from typing import NamedTuple

import pytest

from nodeagent.core.clock import SystemClock
from nodeagent.edge.kube.errors import ApiConflict
from nodeagent.edge.kube.node import KubeNode
from nodeagent.edge.kube.slices import KubeDeviceClasses, KubeSlices
from nodeagent.model.allocation import PodIdentity
from nodeagent.model.cluster import READY_CONDITION, EventSeries, NodeCondition, NodeEvent, Taint
from nodeagent.model.errors import NodeagentError
from nodeagent.model.slices import DeviceClass, DeviceTaint, SliceContent, SliceDevice, SlicePool
from tests.fakes.node_api import FakeNodeApi
from tests.fakes.slices import FakeDeviceClasses, FakeSliceApi
from tests.support.wire.api_servers import MERGE, OpenApiServer, path_of, render_class, render_node

COUNT, MODE = "nvidia.com/gpu.count", "nvidia.com/gpu.mode"
ONE, OTHER = (SliceContent(devices=(SliceDevice(name=name),)) for name in ("gpu-0", "gpu-1"))


class NodeUnderTest(NamedTuple):
    """One node behind its port, and somebody else who sets a label of it."""

    api: KubeNode
    set_label: Callable[[str, str], Awaitable[None]]


OpenNode = Callable[[], AbstractAsyncContextManager[NodeUnderTest]]
ClassesUnderTest = tuple[KubeDeviceClasses, Callable[[], Awaitable[DeviceClass]], Callable[[str], Awaitable[None]]]
OpenClasses = Callable[[], AbstractAsyncContextManager[ClassesUnderTest]]
OpenSlices = Callable[[], AbstractAsyncContextManager[tuple[KubeSlices, str]]]


@pytest.fixture(params=["stand-in", "client"])
def open_node(request: pytest.FixtureRequest, open_api_server: OpenApiServer) -> OpenNode:
    """The node as components have it in their tests, and as they have it in life."""

    @asynccontextmanager
    async def open_stand_in() -> AsyncIterator[NodeUnderTest]:
        fake = FakeNodeApi()

        async def set_label(key: str, value: str) -> None:
            await fake.write_label(key, value)

        yield NodeUnderTest(fake, set_label)

    @asynccontextmanager
    async def open_client() -> AsyncIterator[NodeUnderTest]:
        async with open_api_server() as server, server.client() as client:
            name = server.new_name("node")
            await server.add("nodes", render_node(name))

            async def set_label(key: str, value: str) -> None:
                patch = {"metadata": {"labels": {key: value}}}
                await server.ask("PATCH", path_of("nodes", name), patch, kind=MERGE)

            yield NodeUnderTest(KubeNode(client, name, SystemClock(), Random(), silence_seconds=60), set_label)

    return open_stand_in if request.param == "stand-in" else open_client


@pytest.fixture(params=["stand-in", "client"])
def open_classes(request: pytest.FixtureRequest, open_api_server: OpenApiServer) -> OpenClasses:
    """Classes as their component has them in its tests, and as it has them in life; how one comes, and goes."""
    selector = "device.driver == 'gpu.nvidia.com'"

    @asynccontextmanager
    async def open_stand_in() -> AsyncIterator[ClassesUnderTest]:
        classes = FakeDeviceClasses()
        made = DeviceClass(name="class", resource="example.com/gpu", selectors=(selector,))

        async def put() -> DeviceClass:
            classes.put(made)
            return made

        async def drop(_: str) -> None:
            classes.put()

        yield classes, put, drop

    @asynccontextmanager
    async def open_client() -> AsyncIterator[ClassesUnderTest]:
        async with open_api_server() as server, server.client() as client:

            async def put() -> DeviceClass:
                name = server.new_name("class")
                await server.add("deviceclasses", render_class(name, "example.com/gpu", selector))
                return DeviceClass(name=name, resource="example.com/gpu", selectors=(selector,))

            async def drop(name: str) -> None:
                await server.drop("deviceclasses", name)

            yield KubeDeviceClasses(client, Random(), silence_seconds=60), put, drop

    return open_stand_in if request.param == "stand-in" else open_client


@pytest.fixture(params=["stand-in", "client"])
def open_slices(request: pytest.FixtureRequest, open_api_server: OpenApiServer) -> OpenSlices:
    """Slices as their component has them in its tests, and as it has them in life; and a name for one."""

    @asynccontextmanager
    async def open_stand_in() -> AsyncIterator[tuple[KubeSlices, str]]:
        yield FakeSliceApi(), "slice"

    @asynccontextmanager
    async def open_client() -> AsyncIterator[tuple[KubeSlices, str]]:
        async with open_api_server() as server, server.client() as client:
            node = server.new_name("node")
            await server.add("nodes", render_node(node))
            pool = SlicePool(driver="gpu.nvidia.com", node=node)
            yield KubeSlices(client, pool, Random(), silence_seconds=60), server.new_name("slice")

    return open_stand_in if request.param == "stand-in" else open_client


async def test_labels_are_ours_until_somebody_else_writes_them(open_node: OpenNode) -> None:
    """What is applied is owned; what is no longer named goes; a label that was written over is not ours any more."""
    async with open_node() as (node, set_label), aclosing(node.follow_node()) as states:
        first = await anext(states)
        await set_label("team", "blue")
        assert (await anext(states)).labels["team"] == "blue"
        await node.apply_labels(first, {COUNT: "8", MODE: "compute"})
        assert (await anext(states)).owned_labels == (COUNT, MODE)
        await node.apply_labels(first, {COUNT: "7"})
        state = await anext(states)
        assert (state.labels, state.owned_labels) == ({"team": "blue", COUNT: "7"}, (COUNT,))
        await set_label(COUNT, "4")
        state = await anext(states)
        assert (state.labels[COUNT], state.owned_labels) == ("4", ())
        with pytest.raises(ApiConflict):
            await node.apply_labels(first, {COUNT: "8"})


async def test_what_changes_nothing_is_not_told(open_node: OpenNode) -> None:
    """A write of what is there already is no change, except that of a condition, which has a new time."""
    async with open_node() as (node, set_label), aclosing(node.follow_node()) as states:
        first = await anext(states)
        await node.apply_labels(first, {COUNT: "8"})
        before = await anext(states)
        await node.apply_labels(first, {COUNT: "8"})
        await node.write_label(COUNT, "8")
        await node.write_label("nvidia.com/none", None)
        await node.write_annotation("nvidia.com/none", None)
        await node.change_taint(Taint(key="nvidia.com/none", effect="NoSchedule"), present=False)
        await set_label("team", "blue")
        after = await anext(states)
        assert after.labels == before.labels | {"team": "blue"}


async def test_conditions_stand_side_by_side(open_node: OpenNode) -> None:
    """That of GPUs and those of other devices; one that is removed leaves the others."""
    cards = NodeCondition(type="devices.nodeagent.io/cards", status="True", reason="DevicesReady")
    gpus = NodeCondition(type=READY_CONDITION, status="False", reason="DriverStuck", message="why")
    async with open_node() as (node, _), aclosing(node.follow_node()) as states:
        await anext(states)
        await node.write_condition(cards, changed=True)
        assert (await anext(states)).device_conditions == (cards,)
        await node.write_condition(gpus, changed=True)
        assert (await anext(states)).condition == gpus
        await node.remove_condition(cards.type)
        state = await anext(states)
        assert (state.device_conditions, state.condition) == ((), gpus)
        await node.remove_condition(gpus.type)
        assert (await anext(states)).condition is None


async def test_annotations_and_taints_come_and_go(open_node: OpenNode) -> None:
    """Each by itself, and a taint that is put on twice is there once."""
    taint = Taint(key="nvidia.com/starting", effect="NoSchedule")
    async with open_node() as (node, _), aclosing(node.follow_node()) as states:
        assert (await anext(states)).annotations == {}
        await node.write_annotation("nvidia.com/x", "1")
        assert (await anext(states)).annotations == {"nvidia.com/x": "1"}
        await node.write_annotation("nvidia.com/x", None)
        assert (await anext(states)).annotations == {}
        for _ in range(2):
            await node.change_taint(taint, present=True)
        assert [each for each in (await anext(states)).taints if each == taint] == [taint]
        await node.change_taint(taint, present=False)
        state = await anext(states)
        assert taint not in state.taints
        await node.write_event(state, NodeEvent(reason="GPUUnhealthy", note="n"), 3)
        pod = PodIdentity(namespace="default", name="x", uid=state.uid)
        event = NodeEvent(reason="GPUXidError", note="n", pod=pod)
        await node.write_series(EventSeries(event=event, pod=pod, first_seconds=1.0, last_seconds=1.0))


async def test_classes_are_told_whole_after_each_change(open_classes: OpenClasses) -> None:
    """One that comes and goes is so in the next table."""
    async with open_classes() as (classes, put, drop):
        async with aclosing(classes.follow_classes()) as tables:
            before = dict(await anext(tables))
            made = await put()
            assert made.name not in before
            assert (await anext(tables))[made.name] == made
            await drop(made.name)
            assert made.name not in await anext(tables)


async def test_slices_are_told_whole_after_each_write(open_slices: OpenSlices) -> None:
    """One that is made, changed and deleted is so in the next table; what changes nothing has no new version."""
    async with open_slices() as (slices, name):
        uid = await slices.read_node_uid()
        async with aclosing(slices.follow_slices()) as tables:
            assert dict(await anext(tables)) == {}
            made = await slices.create(name, ONE, (1, 1), uid)
            assert (made.name, made.generation, made.slice_count, made.content, made.is_owned) == (
                name,
                1,
                1,
                ONE,
                True,
            )
            assert dict(await anext(tables)) == {name: made}
            assert await slices.update(made, ONE, (1, 1), uid) == made
            changed = await slices.update(made, OTHER, (2, 1), uid)
            assert (changed.uid, changed.content, changed.generation) == (made.uid, OTHER, 2)
            assert int(changed.version) > int(made.version)
            assert dict(await anext(tables)) == {name: changed}
            await slices.delete(changed)
            assert dict(await anext(tables)) == {}


async def test_a_slice_that_is_only_tried_is_not_written(open_slices: OpenSlices) -> None:
    """The answer is what would be kept, of a new slice and of a change; one changed meanwhile is refused."""
    async with open_slices() as (slices, name):
        uid = await slices.read_node_uid()
        assert await slices.rehearse(name, ONE, (1, 1), uid, None) == ONE
        made = await slices.create(name, ONE, (1, 1), uid)
        assert await slices.rehearse(name, OTHER, (2, 1), uid, made) == OTHER
        async with aclosing(slices.follow_slices()) as tables:
            assert dict(await anext(tables)) == {name: made}
        await slices.update(made, OTHER, (2, 1), uid)
        with pytest.raises(NodeagentError):
            await slices.rehearse(name, ONE, (3, 1), uid, made)


async def test_who_writes_a_slice_second_is_refused(open_slices: OpenSlices) -> None:
    """A name that is taken, a version that is gone: neither is written over nor deleted; one that is gone is gone."""
    async with open_slices() as (slices, name):
        uid = await slices.read_node_uid()
        made = await slices.create(name, ONE, (1, 1), uid)
        with pytest.raises(NodeagentError):
            await slices.create(name, ONE, (1, 1), uid)
        changed = await slices.update(made, OTHER, (1, 1), uid)
        with pytest.raises(NodeagentError):
            await slices.update(made, ONE, (1, 1), uid)
        with pytest.raises(NodeagentError):
            await slices.delete(made)
        async with aclosing(slices.follow_slices()) as tables:
            assert dict(await anext(tables)) == {name: changed}
        await slices.delete(changed)
        await slices.delete(changed)
        with pytest.raises(NodeagentError):
            await slices.update(changed, ONE, (1, 1), uid)


async def test_taints_keep_their_times(open_slices: OpenSlices) -> None:
    """A taint is given its time once; a write that keeps the taint keeps the time."""
    taint = DeviceTaint(key="nodeagent.io/unhealthy", value="", effect="NoSchedule")
    tainted = SliceContent(devices=(SliceDevice(name="gpu-0", taints=(taint,)),))
    both = SliceContent(devices=(*tainted.devices, SliceDevice(name="gpu-1")))
    async with open_slices() as (slices, name):
        uid = await slices.read_node_uid()
        made = await slices.create(name, tainted, (1, 1), uid)
        assert len(made.taint_times) == 1
        changed = await slices.update(made, both, (2, 1), uid)
        assert (changed.content, changed.taint_times) == (both, made.taint_times)
