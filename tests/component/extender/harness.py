"""An extender's parts over a small API server, without its port."""

import json
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from random import Random
from typing import Any

import anyio

from nodeagent.config.sections.extender import VERBS
from nodeagent.core.clock import SystemClock
from nodeagent.edge.http.messages import Request, Response
from nodeagent.edge.http.queue import RequestQueue
from nodeagent.edge.http.routes import Match, Routes
from nodeagent.edge.kube.client import KubeClient
from nodeagent.edge.kube.fleet import PodAnnotations, watch_nodes, watch_pods
from nodeagent.extender.cluster import Cluster
from nodeagent.extender.decide import Decider
from nodeagent.extender.service import Patience, Service
from nodeagent.extender.trust.digest import ChoiceDigests
from nodeagent.extender.watches import ClusterWatches
from tests.component.edge_kube.harness import EAGER
from tests.fakes.fleet import FakeFleet
from tests.support.scheduling import PROFILES
from tests.support.wire.given_credentials import GivenCredentials

Json = dict[str, Any]


class OpenExtender:
    """One replica, asked by calls."""

    def __init__(
        self, server: FakeFleet, client: KubeClient, *, confirm_seconds: float | None, keys: Sequence[bytes] = ()
    ) -> None:
        clock = SystemClock()
        self.server, self.client = server, client
        self.foreign: list[str] = []
        self.cluster = Cluster(
            PROFILES,
            assume_seconds=60.0,
            linger_seconds=30.0,
            on_foreign=lambda pod: self.foreign.append(pod.title),
        )
        self.cluster.use_digests(ChoiceDigests(keys), clock.monotonic())
        self.annotations = PodAnnotations(client)
        self.picture = ClusterWatches(
            self.cluster,
            watch_nodes(client, Random(1), silence_seconds=20),
            watch_pods(client, Random(1), silence_seconds=20),
            Random(1),
            clock.monotonic,
        )
        self.leads = False
        self.service = Service(
            self.picture,
            Decider(self.cluster, "pack"),
            self.annotations,
            clock,
            Patience(assume_seconds=60.0, propose_seconds=5.0, confirm_seconds=confirm_seconds),
            leads=lambda: self.leads,
            count_requests=lambda: client.counts,
        )
        self._routes = Routes(self.service.routes(RequestQueue(lambda: 4, wait_seconds=5), VERBS))

    async def call(self, method: str, path: str, body: bytes = b"", **query: str) -> Response:
        match = self._routes.find(method, path)
        assert isinstance(match, Match), match
        answer = await match.handler(Request(method, path, query=query, body=body))
        assert isinstance(answer, Response)
        return answer

    async def ask(self, verb: str, pod: str, names: list[str] | None = None) -> Any:
        """As kube-scheduler does, of a pod as the server has it."""
        document = self.server.objects["pods"][pod]
        args = {"Pod": document, "NodeNames": names or list(self.server.objects["nodes"]), "Nodes": None}
        answer = await self.call("POST", f"/scheduler/{verb}", json.dumps(args).encode())
        assert answer.status == 200, answer.body
        return json.loads(answer.body)

    async def get(self, path: str, **query: str) -> tuple[int, str]:
        answer = await self.call("GET", path, b"", **query)
        return answer.status, answer.body.decode()

    async def wait_seen(self, pod: str) -> None:
        """Until the pod is seen as the server has it."""
        metadata = self.server.objects["pods"][pod]["metadata"]
        await self.picture.wait_seen(metadata["uid"], metadata["resourceVersion"])

    async def schedule(self, pod: str) -> str:
        """Ask, and bind as the scheduler would; the node, or nothing."""
        found = await self.ask("predicates", pod)
        assert found["Error"] == "", found
        if not found["NodeNames"]:
            return ""
        (node,) = found["NodeNames"]
        document = self.server.objects["pods"][pod]
        self.server.put("pods", pod, document | {"spec": document["spec"] | {"nodeName": node}})
        return str(node)


@asynccontextmanager
async def open_server() -> AsyncIterator[FakeFleet]:
    async with FakeFleet().running() as server:
        yield server


@asynccontextmanager
async def open_extender(
    server: FakeFleet,
    tmp_path: Path,
    *,
    confirm_seconds: float | None = None,
    synced: bool = True,
    keys: Sequence[bytes] = (),
) -> AsyncIterator[OpenExtender]:
    """With its watches running, and everything seen once."""
    client = KubeClient(GivenCredentials(server.write_kubeconfig(tmp_path / "kubeconfig")), lambda: EAGER)
    extender = OpenExtender(server, client, confirm_seconds=confirm_seconds, keys=keys)
    try:
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(extender.picture.run)
            if synced:
                with anyio.fail_after(10):
                    await extender.picture.wait_ready()
            try:
                yield extender
            finally:
                tasks.cancel_scope.cancel()
    finally:
        await client.aclose()


def capacity(gpus: int = 2, blocks: int = 8) -> Mapping[str, str]:
    return {"tencent.com/vcuda-core": str(gpus * 100), "tencent.com/vcuda-memory": str(blocks)}
