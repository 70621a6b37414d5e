"""The small API server and a client of it, over real HTTP."""

from collections.abc import AsyncGenerator, AsyncIterator
from contextlib import aclosing, asynccontextmanager
from pathlib import Path
from random import Random
from typing import TypeVar

from nodeagent.core.clock import SystemClock
from nodeagent.edge.kube.client import ClientSettings, KubeClient
from nodeagent.edge.kube.credentials import Kubeconfig
from nodeagent.edge.kube.node import KubeNode
from tests.fakes.apiserver import NODE, FakeApiServer
from tests.support.wire.given_credentials import GivenCredentials

T = TypeVar("T")
EAGER = ClientSettings(timeout_seconds=5, requests_per_second=1000, burst=100)
COUNT = "nvidia.com/gpu.count"


@asynccontextmanager
async def open_client(
    tmp_path: Path, settings: ClientSettings = EAGER, *, by_child: bool = False
) -> AsyncIterator[tuple[FakeApiServer, KubeClient]]:
    """A server, and a client by the kubeconfig of that server, which a child process reads where that matters."""
    async with FakeApiServer().running() as server:
        path = server.write_kubeconfig(tmp_path / "kubeconfig")
        client = KubeClient(Kubeconfig(path) if by_child else GivenCredentials(path), lambda: settings)
        try:
            yield server, client
        finally:
            await client.aclose()


@asynccontextmanager
async def open_node(
    tmp_path: Path,
    settings: ClientSettings = EAGER,
    *,
    name: str = NODE,
    silence_seconds: float = 20,
    by_child: bool = False,
) -> AsyncIterator[tuple[FakeApiServer, KubeNode]]:
    async with open_client(tmp_path, settings, by_child=by_child) as (server, client):
        yield server, KubeNode(client, name, SystemClock(), Random(1), silence_seconds=silence_seconds)


async def take(followed: AsyncGenerator[T, None], count: int) -> list[T]:
    """The first values of what is followed, or all where it ends before."""
    found: list[T] = []
    async with aclosing(followed) as values:
        async for value in values:
            found.append(value)
            if len(found) == count:
                break
    return found
