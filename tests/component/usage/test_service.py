"""The service of gpu-manager, as its clients ask it: over HTTP and over gRPC."""

import http.client
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import anyio
import pytest
from anyio import to_thread
from google.protobuf.empty_pb2 import Empty
from grpclib.client import Channel
from msgspec import json
from msgspec.structs import replace

from nodeagent.components.usage.measure import measure
from nodeagent.components.usage.service_task import ServiceAddress, UsageService
from nodeagent.config.live import LiveSettings
from nodeagent.config.schema import Settings
from nodeagent.core.channels.bus import Bus
from nodeagent.edge.gpu_manager.proto.display_grpc import GPUDisplayStub
from nodeagent.edge.http.listeners import open_tcp_listener
from nodeagent.edge.http.messages import TEXT, Answer, Request, Response
from nodeagent.model.fractions import FractionOffers
from tests.support.samples import make_inventory, make_uuid
from tests.support.virtual_time import FakeClock
from tests.unit.components.usage.builders import bind, place, run, sample, tabulate


async def tell_metrics(_request: Request) -> Answer:
    return Response(b"container_gpu_utilization 1\n", content_type=TEXT)


def fill(bus: Bus) -> None:
    """A container at work on half a GPU."""
    table, now = tabulate(bind(1, "a", cores=50)), sample(run(10, 40, 3))
    bus.publish_state(make_inventory(), source="inventory")
    bus.publish_state(table, source="allocations")
    bus.publish_state(FractionOffers(unfit={make_uuid(0): "", make_uuid(1): ""}), source="fractions")
    bus.publish_state(now, source="inventory")
    bus.publish_state(measure(table, make_inventory(), now, {10: place("a")}, {}), source="usage")


@asynccontextmanager
async def serving(bus: Bus, *, path: Path | None = None, is_heard: bool = True) -> AsyncIterator[int]:
    """The component; yields its port."""
    settings = Settings()
    live = LiveSettings(replace(settings, fractions=replace(settings.fractions, usage_socket=path)))
    with open_tcp_listener("127.0.0.1", 0, key="fractions.usage_listen") as listener:
        door = ServiceAddress(listener, ("node-a",)) if is_heard else None
        service = UsageService(bus, live, version="1.2.3", metrics={"/metric": tell_metrics}, door=door)
        async with anyio.create_task_group() as tasks:
            await tasks.start(lambda *, task_status: service.run(task_status=task_status))
            yield listener.getsockname()[1]
            tasks.cancel_scope.cancel()


async def get(port: int, path: str, host: str = "127.0.0.1") -> tuple[int, bytes]:
    def ask() -> tuple[int, bytes]:
        connection = http.client.HTTPConnection("127.0.0.1", port, timeout=10)
        try:
            connection.request("GET", path, headers={"Host": host})
            answer = connection.getresponse()
            return answer.status, answer.read()
        finally:
            connection.close()

    return await to_thread.run_sync(ask)


async def read(port: int, path: str) -> Any:
    status, body = await get(port, path)
    assert status == 200
    return json.decode(body)


async def test_what_is_used_is_told_over_http() -> None:
    """Under its paths, in its fields."""
    bus = Bus(FakeClock())
    async with serving(bus) as port:
        assert await read(port, "/usage") == {"usage": {}}
        assert await read(port, "/graph") == {"graph": "ROOT:0\n"}
        fill(bus)
        usage = (await read(port, "/usage"))["usage"]
        assert usage["u-a"]["stat"]["main"]["dev"][0]["gpu"] == 40.0
        assert usage["u-a"]["spec"]["main"] == {"gpu": 0.5, "mem": 8192.0}
        graph = (await read(port, "/graph"))["graph"]
        assert graph.startswith("ROOT:1\n|---")
        assert "allocatableCores: 50" in graph
        assert await read(port, "/version") == {"version": "1.2.3"}
        assert await get(port, "/metric") == (200, b"container_gpu_utilization 1\n")
        assert (await get(port, "/metrics"))[0] == 404


async def test_a_page_of_another_name_is_refused() -> None:
    """As at the agent's own port: no password is asked for, so a browser must not be led here."""
    async with serving(Bus(FakeClock())) as port:
        assert (await get(port, "/version", "node-a"))[0] == 200
        assert (await get(port, "/version", "evil.example.com"))[0] == 421


@pytest.mark.parametrize("is_heard", [True, False])
async def test_the_same_is_told_over_grpc(short_dir: Path, is_heard: bool) -> None:
    """With its numbers of fields, as the stub generated from them reads; with or without HTTP beside it."""
    bus = Bus(FakeClock())
    fill(bus)
    path = short_dir / "gpu-manager.sock"
    async with serving(bus, path=path, is_heard=is_heard) as port:
        channel = Channel(path=str(path))
        try:
            stub = GPUDisplayStub(channel)
            usage = await stub.PrintUsages(Empty())
            graph = await stub.PrintGraph(Empty())
            version = await stub.Version(Empty())
        finally:
            channel.close()
        if is_heard:
            assert graph.graph == (await read(port, "/graph"))["graph"]
    pod = usage.usage["u-a"]
    (device,) = pod.stat["main"].dev
    assert (device.card_idx, device.gpu, device.mem, list(device.pids)) == ("0", 40.0, 3072.0, [10])
    assert (pod.project, pod.spec["main"].gpu, version.version) == ("ml", 0.5, "1.2.3")
    assert graph.graph.startswith("ROOT:1\n")
    assert not path.exists(), "it is gone with the service"


async def test_an_answer_that_fails_is_said_and_ends_nothing(
    log_lines: list[dict[str, Any]], monkeypatch: pytest.MonkeyPatch
) -> None:
    bus = Bus(FakeClock())
    async with serving(bus) as port:
        with monkeypatch.context() as patch:
            patch.setattr("nodeagent.components.usage.service_task.render_graph", lambda *_: 1 / 0)
            assert (await get(port, "/graph"))[0] == 500
        assert (await get(port, "/graph"))[0] == 200
    assert [line["event"] for line in log_lines] == ["usage_served", "request_failed"]
