"""The kernel log as second source."""

from collections.abc import Iterator
from pathlib import Path

import anyio
import pytest

from nodeagent.components.health.component import REWRITE_SECONDS
from nodeagent.model.events import XidReported
from nodeagent.model.health import Verdict
from tests.component.health.health_node import KernelLogPipe, Node

pytestmark = pytest.mark.virtual_time

HEALTHY, SUSPECT, UNHEALTHY = Verdict.HEALTHY, Verdict.SUSPECT, Verdict.UNHEALTHY


@pytest.fixture
def log(tmp_path: Path) -> Iterator[KernelLogPipe]:
    pipe = KernelLogPipe(tmp_path / "kmsg")
    yield pipe
    pipe.close()


def address(node: Node, index: int) -> str:
    return node.gpus.profile.seats[index].address.removesuffix(".0")


async def test_xid_that_only_the_log_has_acts(tmp_path: Path, log: KernelLogPipe) -> None:
    """Within two seconds, as a fact like any other, with its text."""
    async with Node(tmp_path, kernel_log=log.path).running() as node:
        await node.wait_verdict(1, HEALTHY)
        log.say(f"NVRM: Xid (PCI:{address(node, 1)}): 48, pid=12, name=python, DBE at 0x1")
        assert await node.wait_verdict(1, UNHEALTHY) < 2
        (fact,) = node.told(XidReported)
        assert (fact.value.xid, fact.value.source, fact.value.message) == (48, "kernel_log", "DBE at 0x1")
        assert node.details("kernel-log-unwatched") == []


async def test_same_fault_in_both_sources_counts_once(tmp_path: Path, log: KernelLogPipe) -> None:
    """The log adds its text to what NVML has told, and no second fact."""
    async with Node(tmp_path, kernel_log=log.path).running() as node:
        await node.wait_verdict(0, HEALTHY)
        gpu = node.device(0).gpu
        log.say(f"NVRM: Xid (PCI:{address(node, 0)}): 94, Contained: SM (0x1). RST: Yes, D-RST: No")
        node.bus.publish_fact(XidReported(gpu=gpu, xid=94), source="test")
        await anyio.sleep(0.1)
        assert node.device(0).verdict is SUSPECT
        await anyio.sleep(0.6)
        assert node.device(0).verdict is UNHEALTHY
        assert node.device(0).reason == "XID 94: contained memory error; the driver says that a reset is needed"
        assert len(node.told(XidReported)) == 1


async def test_burst_of_the_same_line_is_held_once(tmp_path: Path, log: KernelLogPipe) -> None:
    """A flood of one fault makes one fact."""
    async with Node(tmp_path, kernel_log=log.path).running() as node:
        await node.wait_verdict(0, HEALTHY)
        for _ in range(20):
            log.say(f"NVRM: Xid (PCI:{address(node, 0)}): 119, Timeout")
            await anyio.sleep(0.001)
        await anyio.sleep(2)
        assert [fact.value.xid for fact in node.told(XidReported)] == [119]


@pytest.mark.parametrize(
    ("line", "xid"),
    [
        ("NVRM: GPU {address}.0: GPU has fallen off the bus.", 79),
        ("NVRM: GPU {address}.0: RmInitAdapter failed! (0x26:0x56:1474)", 143),
        ("NVRM: Xid (PCI:{address}): what, broken", 999),
    ],
)
async def test_lines_without_a_number_are_faults_too(tmp_path: Path, log: KernelLogPipe, line: str, xid: int) -> None:
    """A lost card, a card that does not start, a number that cannot be read."""
    async with Node(tmp_path, kernel_log=log.path).running() as node:
        await node.wait_verdict(2, HEALTHY)
        log.say(line.format(address=address(node, 2)))
        await anyio.sleep(1)
        assert [fact.value.xid for fact in node.told(XidReported)] == [xid]


@pytest.mark.parametrize(
    "line",
    [
        "usb 1-1: new device",
        "NVRM: API mismatch: the client has the version 1, but this kernel module has the version 2.",
        "NVRM: Xid (PCI:0000:ee:00): 79, somebody else's",
    ],
)
async def test_lines_of_no_gpu_change_nothing(tmp_path: Path, log: KernelLogPipe, line: str) -> None:
    """Other drivers, other troubles, other cards."""
    async with Node(tmp_path, kernel_log=log.path).running() as node:
        await node.wait_verdict(0, HEALTHY)
        log.say(line)
        await anyio.sleep(2)
        assert (node.told(XidReported), set(node.verdicts)) == ([], {HEALTHY})


async def test_forged_line_changes_nothing(tmp_path: Path, log: KernelLogPipe) -> None:
    """User space may write to the log, but not as the kernel."""
    async with Node(tmp_path, kernel_log=log.path).running() as node:
        await node.wait_verdict(0, HEALTHY)
        log.say(f"NVRM: Xid (PCI:{address(node, 0)}): 79, GPU has fallen off the bus.", facility=1)
        await anyio.sleep(2)
        assert set(node.verdicts) == {HEALTHY}


async def test_line_from_before_the_first_start_needs_clean_levels_only(tmp_path: Path, log: KernelLogPipe) -> None:
    """It is no news for the bus, marks the GPU until it was looked at, and asks for no reset that may have been."""
    node = Node(tmp_path, kernel_log=log.path)
    node.clock.advance(1000)
    log.say(f"NVRM: Xid (PCI:{address(node, 3)}): 119, Timeout", at=10)
    async with node.running():
        await node.wait_verdict(3, UNHEALTHY)
        assert await node.wait_verdict(3, HEALTHY) <= 15
        assert node.told(XidReported) == []


async def find_told_by_the_next(state_dir: Path, log: KernelLogPipe) -> list[int]:
    """The XIDs that an agent tells of which begins after the driver has said one more."""
    after = Node(state_dir, kernel_log=log.path)
    after.clock.advance(1000)
    log.say(f"NVRM: Xid (PCI:{address(after, 0)}): 119, Timeout", at=6)
    async with after.running():
        await after.wait_verdict(0, UNHEALTHY)
        return [fact.value.xid for fact in after.told(XidReported)]


async def test_lines_while_the_agent_was_down_are_news(tmp_path: Path, log: KernelLogPipe) -> None:
    """The position in the log outlives the agent; what came after it has never been told."""
    async with Node(tmp_path, kernel_log=log.path).running() as node:
        await node.wait_verdict(0, HEALTHY)
        log.say(f"NVRM: Xid (PCI:{address(node, 0)}): 13, Graphics Exception", at=5)
        await anyio.sleep(2)
    assert await find_told_by_the_next(tmp_path, log) == [119]


async def test_line_that_was_held_when_the_agent_ended_is_told_by_the_next(tmp_path: Path, log: KernelLogPipe) -> None:
    """What is written down as read has been told: a line that waits for NVML's word is not, whatever ends the agent."""
    async with Node(tmp_path, kernel_log=log.path).running() as node:
        await node.wait_verdict(0, HEALTHY)
        line = f"NVRM: Xid (PCI:{address(node, 1)}): 48, pid=12, name=python, DBE at 0x1"
        log.say(line, at=5)
        await anyio.sleep(0.3)
        assert node.told(XidReported) == []
    # The kernel still has it, and gives it to whoever opens the log.
    again = KernelLogPipe(tmp_path / "kmsg-again")
    try:
        again.say(line, at=5)
        after = Node(tmp_path, kernel_log=again.path)
        after.clock.advance(1000)
        async with after.running():
            await after.wait_verdict(1, UNHEALTHY)
            assert [fact.value.xid for fact in after.told(XidReported)] == [48]
    finally:
        again.close()


async def test_silent_log_is_remembered_too(tmp_path: Path, log: KernelLogPipe) -> None:
    """What the driver says after a first reading without a word of it is news, whenever it is read."""
    async with Node(tmp_path, kernel_log=log.path).running() as node:
        await node.wait_verdict(0, HEALTHY)
        log.say("somebody else's line", at=5)
        await anyio.sleep(REWRITE_SECONDS + 10)
    assert await find_told_by_the_next(tmp_path, log) == [119]


async def test_switch_errors_mark_linked_gpus(tmp_path: Path, log: KernelLogPipe) -> None:
    """A dead switch takes them all; the follow-up lines of the same error are not counted."""
    async with Node(tmp_path, kernel_log=log.path).running() as node:
        await node.wait_verdict(0, HEALTHY)
        log.say("nvidia-nvswitch0: SXid (PCI:0000:05:00.0): 23001, Data {0x1}")
        await anyio.sleep(1)
        assert set(node.verdicts) == {HEALTHY}
        log.say("nvidia-nvswitch0: SXid (PCI:0000:05:00.0): 23001, Fatal, Link 04 something broke")
        await node.wait_verdict(7, UNHEALTHY, within_seconds=1)
        assert set(node.verdicts) == {UNHEALTHY}


async def test_lost_records_ask_for_a_look(
    tmp_path: Path, log: KernelLogPipe, log_lines: list[dict[str, object]]
) -> None:
    """What the ring overwrote may have been about us."""
    async with Node(tmp_path, kernel_log=log.path).running() as node:
        await node.wait_verdict(0, HEALTHY)
        log.say("first")
        await anyio.sleep(0.1)
        log.skip(5)
        log.say("after the gap")
        await anyio.sleep(1)
        assert [line["count"] for line in log_lines if line["event"] == "kernel_log_records_lost"] == [5]


async def test_log_that_cannot_be_read_is_a_condition(tmp_path: Path) -> None:
    """NVML alone then; it is tried again, and the condition goes when it works."""
    path = tmp_path / "kmsg"
    async with Node(tmp_path, kernel_log=path).running() as node:
        await node.wait_verdict(0, HEALTHY)
        assert str(path) in node.details("kernel-log-unwatched")[0]
        log = KernelLogPipe(path)
        try:
            await anyio.sleep(61)
            assert node.details("kernel-log-unwatched") == []
        finally:
            log.close()


async def test_log_is_left_alone_when_told_so(tmp_path: Path, log: KernelLogPipe) -> None:
    """A setting, for hosts where nobody may read it."""
    async with Node(tmp_path, kernel_log=log.path, watch_kernel_log=False).running() as node:
        await node.wait_verdict(0, HEALTHY)
        log.say(f"NVRM: Xid (PCI:{address(node, 0)}): 119, Timeout")
        await anyio.sleep(2)
        assert set(node.verdicts) == {HEALTHY}
