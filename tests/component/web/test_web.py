"""The part that answers people and scripts: what it says when something is in the way, asked without a socket."""

import socket
from collections.abc import AsyncIterator, Iterator, Mapping
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import anyio
import pytest
from msgspec import json
from msgspec.structs import replace

from nodeagent.components.web.api.build import Identity
from nodeagent.components.web.component import (
    GATHER_SECONDS,
    KEEP_SECONDS,
    KEEPALIVE_SECONDS,
    Listening,
    Sources,
    WebComponent,
)
from nodeagent.components.web.event_store import EVENT_STORE_VERSION
from nodeagent.components.web.view import NodeView
from nodeagent.config.live import LiveSettings
from nodeagent.config.schema import Settings
from nodeagent.core.channels.bus import Bus
from nodeagent.core.conditions import Conditions
from nodeagent.core.life.gates import Gates
from nodeagent.edge.host.files.sealed_file import SealedFile
from nodeagent.edge.host.files.sealed_store import SealedStore
from nodeagent.edge.http.capacity import Capacity
from nodeagent.edge.http.messages import Answer, Peer, Request, Response, Stream
from nodeagent.edge.http.routes import Match, Routes
from nodeagent.model.conditions import CATALOGUE
from nodeagent.model.driver import DriverPhase, DriverState
from nodeagent.model.telemetry import NodeSample
from tests.component.node_requests.test_node_requests import FakeControl
from tests.support.virtual_time import FakeClock
from tests.support.waiting import wait_until

pytestmark = pytest.mark.virtual_time
SEAL = "nodeagent-events"


class Stage:
    """The component with everything round it; requests go to its routes, past the server."""

    def __init__(self, clock: FakeClock, state_dir: Path, **http: Any) -> None:
        self.bus = Bus(clock)
        self.conditions = Conditions(self.bus, clock, CATALOGUE)
        self.live = LiveSettings(Settings())
        self.configure(**http)
        self.path = state_dir / "events.json"
        self.store = SealedStore(SealedFile(self.path, SEAL, EVENT_STORE_VERSION))
        identity = Identity(version="1", node="n", gpu_source="nvml", pid=7, started_seconds=12.4)
        gates = Gates(["driver_ready"], clock=clock)
        view = NodeView(
            self.bus.read,
            self.bus.history,
            identity,
            gates=gates.states,
            conditions=self.conditions.active,
            reports=list,
            receipts=tuple,
            wall=clock.wall,
        )
        self.public, self.admin = socket.socket(), socket.socket(socket.AF_UNIX)
        self.public.bind(("127.0.0.1", 0))
        self.admin.bind(str(state_dir / "admin.sock"))
        self.public.listen()
        self.admin.listen()
        self.web = WebComponent(
            self.bus,
            view,
            FakeControl().orders,
            self.live,
            Listening(public=self.public, admin=self.admin, names=("n",), capacity=Capacity(10, 10)),
            Sources(metrics=self._scrape, introspect=dict, list_history=list, list_receipts=list, list_slices=list),
            conditions=self.conditions,
            past=self.store,
        )
        self.routes = Routes([*self.web._looking(), *self.web._changing()])

    async def _scrape(self, _request: Request) -> Answer:
        return Response(b"")

    def configure(self, **http: Any) -> None:
        self.live.replace(replace(self.live.now, http=replace(self.live.now.http, **http)))

    @asynccontextmanager
    async def running(self) -> AsyncIterator["Stage"]:
        async with anyio.create_task_group() as tasks:
            await tasks.start(lambda *, task_status: self.web.run(task_status=task_status))
            yield self
            tasks.cancel_scope.cancel()

    def close(self) -> None:
        self.store.close()
        self.public.close()
        self.admin.close()

    async def ask(self, path: str, query: Mapping[str, str], *, method: str = "GET", uid: int = 0) -> Answer:
        match = self.routes.find(method, path)
        assert isinstance(match, Match)
        peer = Peer(pid=1, uid=uid, gid=uid)
        return await match.handler(Request(method=method, path=path, query=query, arguments=match.arguments, peer=peer))

    async def read(self, path: str, **query: str) -> Response:
        answer = await self.ask(path, query)
        assert isinstance(answer, Response)
        return answer

    async def follow(self, path: str, **query: str) -> AsyncIterator[bytes]:
        answer = await self.ask(path, query)
        assert isinstance(answer, Stream)
        return answer.chunks

    def codes(self) -> list[str]:
        return [each.code for each in self.conditions.all_set()]


@pytest.fixture
def stage(clock: FakeClock, tmp_path: Path) -> Iterator[Stage]:
    made = Stage(clock, tmp_path)
    yield made
    made.close()


async def test_events_that_mean_nothing_are_moved_aside(stage: Stage) -> None:
    """Bytes that are whole and no events of this version are as good as none, and that is said."""
    await anyio.to_thread.run_sync(SealedFile(stage.path, SEAL, EVENT_STORE_VERSION).write, b'{"events": 3}')
    async with stage.running():
        await wait_until(lambda: stage.codes() == ["events-lost"])
        told = json.decode((await stage.read("/api/v1/events", follow="false")).body)
        assert {one["type"] for one in told} <= {"ActiveConditions"}


async def test_events_are_kept_once_the_disk_takes_them(clock: FakeClock, tmp_path: Path) -> None:
    """A disk that refuses stops nobody; readings alone are no reason to write."""
    stage = Stage(clock, tmp_path)
    stage.path.parent.joinpath("away").mkdir()
    stage.store.close()
    missing = tmp_path / "not there yet" / "events.json"
    stage.web._store = SealedStore(SealedFile(missing, SEAL, EVENT_STORE_VERSION))
    async with stage.running():
        stage.bus.publish_state(DriverState(phase=DriverPhase.READY), source="test")
        await anyio.sleep(KEEP_SECONDS + 1)
        missing.parent.mkdir()
        await anyio.sleep(KEEP_SECONDS)
        await wait_until(missing.exists)
        before = missing.stat().st_mtime_ns
        stage.bus.publish_state(NodeSample(time_seconds=1.0), source="test")
        stage.bus.publish_state(NodeSample(time_seconds=2.0), source="test")
        await anyio.sleep(KEEP_SECONDS)
        assert missing.stat().st_mtime_ns == before
    stage.close()


async def test_what_is_not_there_is_a_problem_that_says_so(stage: Stage) -> None:
    """Pages, GPUs and parameters, each with what would be right."""
    async with stage.running():
        assert (await stage.read("/gpus/77")).status == 404
        assert (await stage.read("/conditions/none")).status == 404
        assert (await stage.read("/live", page="/nowhere")).status == 404
        assert (await stage.read("/api/v1/gpus/77")).status == 404
        assert (await stage.read("/api/v1/events", since="soon")).status == 400


async def test_streams_are_bounded_together(stage: Stage) -> None:
    """Those of the page and those of the API count as one."""
    stage.configure(max_event_streams=0)
    async with stage.running():
        assert (await stage.read("/live")).status == 503
        assert (await stage.read("/api/v1/events")).status == 503


async def test_a_page_without_news_says_that_somebody_is_there(stage: Stage) -> None:
    """A client that has the newest version gets a sign of life now and then, and news as it comes."""
    async with stage.running():
        chunks = await stage.follow("/live")
        alive, _first = await anext(chunks), await anext(chunks)
        with anyio.fail_after(KEEPALIVE_SECONDS + 1):
            assert await anext(chunks) == alive
        stage.bus.publish_state(DriverState(phase=DriverPhase.STUCK, detail="nvmlInit"), source="test")
        with anyio.fail_after(4 * GATHER_SECONDS):
            assert b"nvmlInit" in await anext(chunks)
        await chunks.aclose()  # type: ignore[attr-defined]  # it is a generator


async def test_events_are_followed_from_where_the_client_was(stage: Stage) -> None:
    """What is remembered and newer first, then what comes, and a sign of life where nothing wanted comes."""
    async with stage.running():
        first = stage.bus.publish_state(DriverState(phase=DriverPhase.STUCK), source="test")
        second = stage.bus.publish_state(DriverState(phase=DriverPhase.READY), source="test")
        chunks = await stage.follow("/api/v1/events", since=str(first.seq), types="DriverState")
        alive = await anext(chunks)
        assert f"id: {second.seq}\n".encode() in await anext(chunks)
        with anyio.fail_after(KEEPALIVE_SECONDS + 1):
            assert await anext(chunks) == alive
        third = stage.bus.publish_state(DriverState(phase=DriverPhase.STUCK), source="test")
        assert f"id: {third.seq}\n".encode() in await anext(chunks)
        await chunks.aclose()  # type: ignore[attr-defined]  # it is a generator
        newer = await stage.read("/api/v1/events", since=str(second.seq), follow="false", types="DriverState")
        assert [one["seq"] for one in json.decode(newer.body)] == [third.seq]


async def test_streams_end_with_the_agent(stage: Stage) -> None:
    """Nobody holds up its end by listening."""
    async with stage.running():
        page, events = await stage.follow("/live"), await stage.follow("/api/v1/events")
        for chunks in (page, events):
            await anext(chunks)
        await anext(page)
    for chunks in (page, events):
        with pytest.raises(StopAsyncIteration):
            await anext(chunks)


async def test_only_the_agents_own_user_and_root_may_change_anything(stage: Stage) -> None:
    """Whoever else could open the socket is told so."""
    async with stage.running():
        answer = await stage.ask("/api/v1/resume", {}, method="POST", uid=12345)
        assert isinstance(answer, Response)
        assert answer.status == 403


async def test_troubles_of_the_server_are_logged(stage: Stage) -> None:
    """A handler that fails, a connection that cannot be taken, and names that come with a reload."""
    stage.web._note_error("GET /", ValueError("x"))
    stage.web._note_exhausted(OSError(24, "too many"))
    before = stage.web._read_hosts()
    assert stage.web._read_hosts() is before
    stage.configure(allowed_hosts=("node.example.com",))
    assert stage.web._read_hosts() is not before
