"""When the agent may say that health is known: with the first look, or when none comes."""

from pathlib import Path

import anyio
import pytest

from nodeagent.components.health.component import FIRST_POLL_SECONDS
from nodeagent.model.health import Verdict
from nodeagent.model.telemetry import NodeSample
from tests.component.health.health_node import Node

pytestmark = pytest.mark.virtual_time


async def test_health_is_known_with_the_first_look(tmp_path: Path) -> None:
    """The first list that a kubelet gets would otherwise have no healthy device, and refuse the pods that come."""
    async with Node(tmp_path).running() as node:
        assert set(node.verdicts) == {Verdict.HEALTHY}
        assert node.clock.monotonic() < FIRST_POLL_SECONDS


async def test_a_look_that_does_not_come_holds_nobody_up_for_long(tmp_path: Path) -> None:
    """The rest of the agent serves what it has, every device unhealthy and the reason said."""
    node = Node(tmp_path)
    await node.break_it("hang", "sample", "forever")
    async with node.running():
        assert set(node.verdicts) == {Verdict.UNKNOWN}
        assert node.clock.monotonic() < 2 * FIRST_POLL_SECONDS


async def test_a_look_during_the_writing_is_not_taken_for_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A slow disk: what is said after it is of before the look, and would refuse the pods that come."""
    node = Node(tmp_path)
    sample, write = node.gpus.read_sample, node.store.write

    async def sample_late() -> NodeSample:
        await anyio.sleep(0.1)
        return await sample()

    async def write_slowly(body: bytes) -> str:
        await anyio.sleep(0.5)
        return await write(body)

    monkeypatch.setattr(node.gpus, "read_sample", sample_late)
    monkeypatch.setattr(node.store, "write", write_slowly)
    async with node.running():
        assert set(node.verdicts) == {Verdict.HEALTHY}


async def test_the_first_word_waits_for_no_disk(tmp_path: Path) -> None:
    """It says what the agent before has written down, and the first look comes the sooner."""
    async with Node(tmp_path).running() as node:
        _, told = node.store.writes[0]
        assert told is not None
        assert {device.verdict for device in told.devices} == {Verdict.UNKNOWN}
