"""The kubelet's account, when it does not answer as it should."""

import socket
from collections.abc import Callable
from contextlib import closing
from pathlib import Path

import pytest
from anyio import create_task_group, create_unix_listener
from anyio.abc import SocketStream
from google.protobuf.message import Message
from grpclib.const import Status
from grpclib.exceptions import GRPCError
from grpclib.server import Server, Stream

from nodeagent.edge.grpc import caller
from nodeagent.edge.grpc.calls import CallRefused, Unary
from nodeagent.edge.grpc.server import open_grpc_server
from nodeagent.edge.kubelet import pod_resources
from nodeagent.edge.kubelet.errors import PodResourcesUnavailable
from nodeagent.edge.kubelet.pod_resources import PodResourcesClient
from nodeagent.edge.kubelet.proto import pod_resources_pb2 as wire
from nodeagent.edge.kubelet.proto.pod_resources_grpc import PodResourcesListerBase
from tests.support.wire.kubelets import no_crash


def refusing(status: Status, text: str, times: int) -> tuple[Unary, Callable[[], int]]:
    """A List that refuses so many times and then answers, and how often it was asked."""
    asked = 0

    async def answer(_request: Message) -> Message:
        nonlocal asked
        asked += 1
        if asked <= times:
            raise CallRefused(status, text)
        return wire.ListPodResourcesResponse()

    return Unary(wire.ListPodResourcesRequest, answer), lambda: asked


async def test_missing_kubelet_is_named(short_dir: Path) -> None:
    """Without a kubelet the error names the socket and what to look at."""
    account = PodResourcesClient(short_dir / "kubelet.sock")
    with pytest.raises(PodResourcesUnavailable, match=r"cannot list pods at .*kubelet\.sock: .*mounted"):
        await account.read_pods()


async def test_silent_kubelet_is_given_up(short_dir: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A kubelet that takes the call and never answers costs a bounded time."""
    monkeypatch.setattr(pod_resources, "ANSWER_SECONDS", 0.1)
    with socket.socket(socket.AF_UNIX) as silent:
        silent.bind(str(short_dir / "kubelet.sock"))
        silent.listen()
        account = PodResourcesClient(short_dir / "kubelet.sock")
        with pytest.raises(PodResourcesUnavailable, match=r"no answer within 0\.1 s"):
            await account.read_allocatable()


@pytest.mark.parametrize(("times", "comes_through"), [(1, True), (3, True), (4, False)])
async def test_turned_away_questions_are_asked_again(short_dir: Path, times: int, *, comes_through: bool) -> None:
    """The rate limit is waited out a few times, not for ever."""
    method, count = refusing(Status.RESOURCE_EXHAUSTED, "rejected by rate limit", times)
    path = short_dir / "kubelet.sock"
    async with open_grpc_server(path, {"/v1.PodResourcesLister/List": method}, no_crash):
        with closing(PodResourcesClient(path)) as account:
            if comes_through:
                assert (await account.read_pods()).containers == ()
            else:
                with pytest.raises(PodResourcesUnavailable, match="rate limit"):
                    await account.read_pods()
    assert count() == min(times + 1, 4)


@pytest.mark.parametrize(
    ("status", "text"), [(Status.NOT_FOUND, "not found"), (Status.UNKNOWN, ""), (Status.PERMISSION_DENIED, "no")]
)
async def test_other_refusals_are_errors_at_once(short_dir: Path, status: Status, text: str) -> None:
    """A refusal for another reason than the rate is not waited out."""
    method, count = refusing(status, text, 1)
    path = short_dir / "kubelet.sock"
    async with open_grpc_server(path, {"/v1.PodResourcesLister/List": method}, no_crash):
        with closing(PodResourcesClient(path)) as account, pytest.raises(PodResourcesUnavailable):
            await account.read_pods()
    assert count() == 1


async def test_long_accounts_are_read_whole(short_dir: Path) -> None:
    """An account beyond gRPC's usual 4 MiB is read."""
    devices = [wire.ContainerDevices(resource_name="r/x", device_ids=["D" * 400])]
    containers = [wire.ContainerResources(name="main", devices=devices)]
    pods = [wire.PodResources(name=f"pod-{number}", namespace="ns", containers=containers) for number in range(12_000)]
    answer = wire.ListPodResourcesResponse(pod_resources=pods)
    assert answer.ByteSize() > 5 * 1024 * 1024

    async def list_pods(_request: Message) -> Message:
        return answer

    path = short_dir / "kubelet.sock"
    methods = {"/v1.PodResourcesLister/List": Unary(wire.ListPodResourcesRequest, list_pods)}
    async with open_grpc_server(path, methods, no_crash):
        with closing(PodResourcesClient(path)) as account:
            assert len((await account.read_pods()).containers) == 12_000


async def test_endless_accounts_are_cut_off(short_dir: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Whoever answers at the kubelet's socket cannot fill the agent's memory."""
    monkeypatch.setattr(caller, "MAX_ANSWER_BYTES", 1000)

    async def list_pods(_request: Message) -> Message:
        return wire.ListPodResourcesResponse(pod_resources=[wire.PodResources(name="x" * 2000)])

    path = short_dir / "kubelet.sock"
    methods = {"/v1.PodResourcesLister/List": Unary(wire.ListPodResourcesRequest, list_pods)}
    async with open_grpc_server(path, methods, no_crash):
        with pytest.raises(PodResourcesUnavailable, match="connection ended"):
            await PodResourcesClient(path).read_pods()


class OtherServer(PodResourcesListerBase):
    """The account on a server of grpclib, whose HTTP/2 is strict about what it takes."""

    async def List(  # noqa: N802 - gRPC's own name
        self, stream: Stream[wire.ListPodResourcesRequest, wire.ListPodResourcesResponse]
    ) -> None:
        assert await stream.recv_message() is not None
        assert stream.deadline is not None
        pods = [wire.PodResources(name=f"pod-{number}", namespace="ns") for number in range(20_000)]
        await stream.send_message(wire.ListPodResourcesResponse(pod_resources=pods))

    async def Get(  # noqa: N802 - likewise
        self, stream: Stream[wire.GetPodResourcesRequest, wire.GetPodResourcesResponse]
    ) -> None:
        await stream.send_message(wire.GetPodResourcesResponse())

    async def GetAllocatableResources(  # noqa: N802 - likewise
        self, stream: Stream[wire.AllocatableResourcesRequest, wire.AllocatableResourcesResponse]
    ) -> None:
        raise GRPCError(Status.NOT_FOUND, "no such thing: 100 %")


async def test_another_http2_agrees(short_dir: Path) -> None:
    """Answers, refusals and long accounts go over a library that is neither ours nor lenient."""
    server = Server([OtherServer()])
    await server.start(path=str(short_dir / "kubelet.sock"))
    try:
        with closing(PodResourcesClient(short_dir / "kubelet.sock")) as account:
            assert len((await account.read_pods()).pods) == 20_000
            with pytest.raises(PodResourcesUnavailable, match="no such thing: 100 %;"):
                await account.read_allocatable()
    finally:
        server.close()
        await server.wait_closed()


async def test_a_kubelet_that_hangs_up_is_unavailable(short_dir: Path) -> None:
    """It ends amid the call, as it does when it is restarted."""

    async def hang_up(stream: SocketStream) -> None:
        await stream.receive()
        await stream.aclose()

    async with await create_unix_listener(short_dir / "kubelet.sock") as listener, create_task_group() as tasks:
        tasks.start_soon(listener.serve, hang_up)
        with pytest.raises(PodResourcesUnavailable, match=r"connection (ended|broke)"):
            await PodResourcesClient(short_dir / "kubelet.sock").read_pods()
        tasks.cancel_scope.cancel()
