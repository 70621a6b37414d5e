"""The kubelet's pods API, when the kubelet says no, drops its reader, or makes no sense."""

import asyncio
import gc
from collections.abc import AsyncIterator
from contextlib import aclosing, asynccontextmanager
from pathlib import Path

import anyio
import pytest

from nodeagent.edge.grpc.calls import Replies, Streaming
from nodeagent.edge.grpc.server import open_grpc_server
from nodeagent.edge.kubelet.errors import PodsUnavailable
from nodeagent.edge.kubelet.pods_api import WATCH, KubeletPods
from nodeagent.edge.kubelet.proto import pods_pb2 as wire
from nodeagent.model.allocation import PodIdentity
from nodeagent.model.ports import KubeletPod
from tests.support.wire.kubelets import NAMESPACE, no_crash, running_stand_in

GREAT_BYTES = 6 << 20
"""More than grpclib takes of one message by itself, and than any pod has."""


def event(kind: wire.EventType, name: str, phase: str = "") -> wire.WatchPodsEvent:
    metadata = wire.ObjectMeta(name=name, namespace="ml", uid=f"uid-{name}")
    pod = wire.Pod(metadata=metadata, status=wire.PodStatus(phase=phase))
    return wire.WatchPodsEvent(type=kind, pod=pod.SerializeToString())


def pod(name: str, phase: str) -> KubeletPod:
    return KubeletPod(identity=PodIdentity(namespace="ml", name=name, uid=f"uid-{name}"), phase=phase)


@asynccontextmanager
async def saying(socket: Path, *said: wire.WatchPodsEvent) -> AsyncIterator[KubeletPods]:
    """A client of a kubelet that says this and ends the stream."""

    async def answer(_request: wire.WatchPodsRequest, replies: Replies) -> None:
        for each in said:
            await replies.send(each)

    async with open_grpc_server(socket, {WATCH: Streaming(wire.WatchPodsRequest, answer)}, no_crash):
        yield KubeletPods(socket)


async def follow_said(socket: Path, *said: wire.WatchPodsEvent) -> list[dict[str, KubeletPod]]:
    """The tables that come of what a kubelet says."""
    async with saying(socket, *said) as pods:
        return [dict(table) async for table in pods.follow()]


async def test_a_table_is_whole_and_new(short_dir: Path) -> None:
    """Nothing before all pods are told; then what differs, in whichever order and however often it is said."""
    end = wire.WatchPodsEvent(type=wire.INITIAL_SYNC_COMPLETE)
    said = [event(wire.MODIFIED, "b", "Running"), event(wire.ADDED, "a", "Pending"), event(wire.ADDED, "a", "Pending")]
    said += [end, event(wire.MODIFIED, "a", "Pending"), event(wire.MODIFIED, "a", "Running")]
    said += [event(wire.DELETED, "b"), event(wire.DELETED, "b")]
    a, b = pod("a", "Running"), pod("b", "Running")
    assert await follow_said(short_dir / "s", *said) == [
        {"uid-a": pod("a", "Pending"), "uid-b": b},
        {"uid-a": a, "uid-b": b},
        {"uid-a": a},
    ]


async def test_a_message_may_be_great_and_the_stream_long(short_dir: Path) -> None:
    """Past gRPC's usual limit, and in sum past what one answer may have."""
    great = event(wire.MODIFIED, "a")
    great.pod += wire.Pod(status=wire.PodStatus(phase="x" * GREAT_BYTES)).SerializeToString()
    end = wire.WatchPodsEvent(type=wire.INITIAL_SYNC_COMPLETE)
    (table,) = await follow_said(short_dir / "s", *[great] * 12, end)
    assert len(table["uid-a"].phase) == GREAT_BYTES


async def test_a_pod_that_makes_no_sense_is_an_error(short_dir: Path) -> None:
    async with saying(short_dir / "s", wire.WatchPodsEvent(type=wire.ADDED, pod=b"\xff")) as pods:
        with pytest.raises(PodsUnavailable, match=r"cannot follow pods at .*/s: "):
            await anext(pods.follow())


async def test_a_kubelet_without_the_socket_is_named(short_dir: Path) -> None:
    """As kubelets before 1.37 are."""
    async with running_stand_in(short_dir, minor=36) as kubelet:
        with pytest.raises(PodsUnavailable, match=r"pods-api\.sock: .*kubelets before 1\.37"):
            await anext(KubeletPods(kubelet.pods_api_socket).follow())


async def test_a_kubelet_that_does_not_know_all_pods_yet_says_so(short_dir: Path) -> None:
    """It is asked again later; half a table would be believed."""
    async with running_stand_in(short_dir) as kubelet:
        kubelet.kubelet.pods_service.knows_all = False
        with pytest.raises(PodsUnavailable, match="Kubelet is initializing"):
            await anext(KubeletPods(kubelet.pods_api_socket).follow())


async def test_a_reader_that_was_dropped_reads_all_anew(short_dir: Path) -> None:
    """The kubelet ends the stream of a slow reader; the next one begins with all pods."""
    async with running_stand_in(short_dir) as kubelet:
        pods = KubeletPods(kubelet.pods_api_socket)
        async with aclosing(pods.follow()) as tables:
            assert await anext(tables) == {}
            kubelet.kubelet.pods_service.drops_readers = True
            await kubelet.run_pod("a", {})
            with anyio.fail_after(20), pytest.raises(PodsUnavailable, match="watch client channel closed"):
                async for _ in tables:
                    pass
        async with aclosing(pods.follow()) as tables:
            (told,) = (await anext(tables)).values()
        assert (told.identity.namespace, told.identity.name, told.phase) == (NAMESPACE, "a", "Running")


async def test_who_stops_reading_leaves_no_failure_unread(short_dir: Path) -> None:
    """The connection breaks under the reader that was told to end: nothing of that is logged."""
    failures: list[dict[str, object]] = []
    asyncio.get_running_loop().set_exception_handler(lambda _, context: failures.append(context))
    stay = anyio.Event()

    async def answer(_request: wire.WatchPodsRequest, replies: Replies) -> None:
        await replies.send(wire.WatchPodsEvent(type=wire.INITIAL_SYNC_COMPLETE))
        await stay.wait()

    socket = short_dir / "s"
    async with open_grpc_server(socket, {WATCH: Streaming(wire.WatchPodsRequest, answer)}, no_crash):
        async with aclosing(KubeletPods(socket).follow()) as tables:
            assert await anext(tables) == {}
        stay.set()
    gc.collect()
    assert failures == []
