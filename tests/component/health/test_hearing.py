"""What the driver reports: heard, missed, of GPUs that nobody knows, and not heard at all."""

from pathlib import Path

import anyio
import pytest
from msgspec.structs import replace

from nodeagent.model.events import VerdictChanged, XidReported
from nodeagent.model.telemetry import EventWatch
from tests.component.health.health_node import HEALTHY, SUSPECT, UNHEALTHY, Node

pytestmark = pytest.mark.virtual_time


async def test_burst_of_xids_is_one_change(tmp_path: Path) -> None:
    """Ten thousand events, one verdict, few writes."""
    async with Node(tmp_path).running() as node:
        await node.wait_verdict(0, HEALTHY)
        gpu = node.device(0).gpu
        before = len(node.store.writes)
        with node.bus.listen(VerdictChanged, client="test") as changes:
            for _ in range(10_000):
                node.bus.publish_fact(XidReported(gpu=gpu, xid=48), source="test")
            await node.wait_verdict(0, UNHEALTHY)
            await anyio.sleep(1)
            assert changes.take_nowait() is not None
            assert changes.take_nowait() is None
        assert "(10000 times)" in node.device(0).reason
        assert len(node.store.writes) - before < 20


async def test_lost_events_ask_for_a_look(tmp_path: Path, log_lines: list[dict[str, object]]) -> None:
    """What the queue dropped may be known from the levels within a sample, long before the next look is due."""
    async with Node(tmp_path, fact_queue_limit=4, poll_seconds=60).running() as node:
        await node.wait_verdict(0, HEALTHY)
        await node.break_it("row-remap", "1", "failed")
        for _ in range(9):
            node.bus.publish_fact(XidReported(gpu=node.device(0).gpu, xid=13), source="test")
        await node.wait_verdict(1, UNHEALTHY, within_seconds=2)
        assert [line["count"] for line in log_lines if line["event"] == "gpu_events_lost"] == [5]


async def test_event_of_an_unknown_gpu_is_logged(tmp_path: Path, log_lines: list[dict[str, object]]) -> None:
    """Nobody is marked, and nothing is dropped without a trace."""
    async with Node(tmp_path).running() as node:
        await node.wait_verdict(0, HEALTHY)
        gpu = node.device(0).gpu
        node.bus.publish_fact(XidReported(gpu=type(gpu)("GPU-nobody"), xid=79), source="test")
        await anyio.sleep(1)
        assert set(node.verdicts) == {HEALTHY}
        assert [line["xid"] for line in log_lines if line["event"] == "xid_of_unknown_gpu"] == [79]


async def test_policy_of_a_reload_counts_from_the_next_event(tmp_path: Path) -> None:
    """A disabled XID no longer acts; the levels it leaves behind do."""
    async with Node(tmp_path).running() as node:
        await node.wait_verdict(0, HEALTHY)
        settings = node.live.now
        node.live.replace(replace(settings, health=replace(settings.health, disable_xids=("60",))))
        await node.break_it("xid", "60", "0")
        await anyio.sleep(1)
        assert node.device(0).verdict is HEALTHY
        node.live.replace(settings)
        await node.break_it("xid", "60", "0")
        await node.wait_verdict(0, SUSPECT, within_seconds=1)


async def test_events_that_cannot_be_heard_are_a_condition(tmp_path: Path) -> None:
    """A driver that reports nothing keeps its devices by their levels, and the report says that it is half blind."""
    async with Node(tmp_path).running() as node:
        await node.wait_verdict(0, HEALTHY)
        node.bus.publish_state(EventWatch(watched=False, reason="cannot watch events: no memory"), source="test")
        await anyio.sleep(5)
        assert node.details("health-unwatched") == ["cannot watch events: no memory"]
        assert not node.report.watched
        assert node.device(0).verdict is HEALTHY
        node.bus.publish_state(EventWatch(watched=True), source="test")
        await anyio.sleep(5)
        assert node.details("health-unwatched") == []
        assert node.report.watched


@pytest.mark.parametrize("fault", ["gone", "mismatch"])
async def test_what_a_driver_kept_from_being_heard_is_not_told_once_it_is_back(tmp_path: Path, fault: str) -> None:
    """While it is away its own condition says why; then it has time to be heard, and a reason of before is not told."""
    async with Node(tmp_path).running() as node:
        await node.wait_verdict(0, HEALTHY)
        await node.break_it("driver", fault)
        await node.break_it("xid", "13", "0")  # wakes the watch, which is refused
        await anyio.sleep(60)
        assert not node.report.watched
        assert node.details("health-unwatched") == []
        await node.break_it("clear")
        was_set = False
        for _ in range(300):
            await anyio.sleep(0.1)
            was_set = was_set or bool(node.details("health-unwatched"))
            assert "health-unwatched" not in {one.code for one in node.conditions.active()}
        assert was_set
        assert node.details("health-unwatched") == []
        assert node.report.watched
