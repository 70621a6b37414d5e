"""The kubelet's account, when it does not answer as it should."""

import socket
from collections.abc import Callable
from contextlib import closing
from pathlib import Path

import pytest
from google.protobuf.message import Message
from grpclib.const import Status

from nodeagent.edge.kubelet import pod_resources
from nodeagent.edge.kubelet.errors import PodResourcesUnavailable, PodUnknown
from nodeagent.edge.kubelet.pod_resources import PodResourcesClient
from nodeagent.edge.kubelet.proto import pod_resources_pb2 as wire
from nodeagent.edge.kubelet.wire.connection import CallRefused, Unary
from nodeagent.edge.kubelet.wire.server import open_grpc_server
from tests.support.kubelets import no_crash

pytestmark = pytest.mark.anyio


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
    with closing(PodResourcesClient(short_dir / "kubelet.sock")) as account:
        with pytest.raises(PodResourcesUnavailable, match=r"cannot list pods at .*kubelet\.sock: .*mounted"):
            await account.read_containers()


async def test_silent_kubelet_is_given_up(short_dir: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A kubelet that takes the call and never answers costs a bounded time."""
    monkeypatch.setattr(pod_resources, "ANSWER_SECONDS", 0.1)
    with socket.socket(socket.AF_UNIX) as silent:
        silent.bind(str(short_dir / "kubelet.sock"))
        silent.listen()
        with closing(PodResourcesClient(short_dir / "kubelet.sock")) as account:
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
                assert await account.read_containers() == ()
            else:
                with pytest.raises(PodResourcesUnavailable, match="rate limit"):
                    await account.read_containers()
    assert count() == min(times + 1, 4)


@pytest.mark.parametrize(
    ("status", "text", "error"),
    [
        (Status.UNKNOWN, "pod x in namespace y not found", PodUnknown),
        (Status.NOT_FOUND, "not found", PodUnknown),
        (Status.UNKNOWN, "", PodResourcesUnavailable),
        (Status.PERMISSION_DENIED, "no", PodResourcesUnavailable),
    ],
)
async def test_other_refusals_are_errors_at_once(
    short_dir: Path, status: Status, text: str, error: type[PodResourcesUnavailable]
) -> None:
    """An unknown pod is told from a kubelet that cannot answer."""
    method, count = refusing(status, text, 1)
    path = short_dir / "kubelet.sock"
    async with open_grpc_server(path, {"/v1.PodResourcesLister/List": method}, no_crash):
        with closing(PodResourcesClient(path)) as account:
            with pytest.raises(PodResourcesUnavailable) as refused:
                await account.read_containers()
    assert type(refused.value) is error
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
            assert len(await account.read_containers()) == 12_000
