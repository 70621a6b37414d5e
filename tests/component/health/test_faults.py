"""Faults on the bus: each once, whichever source reports it first."""

from collections.abc import Iterator
from pathlib import Path

import anyio
import pytest

from nodeagent.model.events import GpuFaultReported, XidReported
from nodeagent.model.health import Verdict
from tests.component.health.health_node import KernelLogPipe, Node
from tests.component.health.test_kernel_log import address

pytestmark = pytest.mark.virtual_time


@pytest.fixture
def log(tmp_path: Path) -> Iterator[KernelLogPipe]:
    pipe = KernelLogPipe(tmp_path / "kmsg")
    yield pipe
    pipe.close()


async def test_a_fault_in_both_sources_is_one(tmp_path: Path, log: KernelLogPipe) -> None:
    """At once, with the driver's report as cause; another report is another fault."""
    async with Node(tmp_path, kernel_log=log.path).running() as node:
        await node.wait_verdict(0, Verdict.HEALTHY)
        reported = XidReported(gpu=node.device(0).gpu, xid=94)
        log.say(f"NVRM: Xid (PCI:{address(node, 0)}): 94, Contained: SM (0x1). RST: Yes, D-RST: No")
        cause = node.bus.publish_fact(reported, source="test")
        await anyio.sleep(0.1)
        (fact,) = node.told(GpuFaultReported)
        assert (fact.value.number, fact.value.gpu, fact.cause) == (94, reported.gpu, cause.seq)
        await anyio.sleep(1)
        assert len(node.told(GpuFaultReported)) == 1
        await anyio.sleep(5)
        node.bus.publish_fact(reported, source="test")
        await anyio.sleep(0.1)
        assert len(node.told(GpuFaultReported)) == 2


async def test_a_fault_that_only_the_log_has_is_told_within_a_second(tmp_path: Path, log: KernelLogPipe) -> None:
    """What the log had before the agent's life is not told."""
    node = Node(tmp_path, kernel_log=log.path)
    node.clock.advance(1000)
    log.say(f"NVRM: Xid (PCI:{address(node, 3)}): 119, Timeout", at=10)
    async with node.running():
        await node.wait_verdict(1, Verdict.HEALTHY)
        assert node.told(GpuFaultReported) == []
        log.say(f"NVRM: Xid (PCI:{address(node, 1)}): 31, pid=12, name=python, MMU Fault")
        await anyio.sleep(0.9)
        assert [fact.value.number for fact in node.told(GpuFaultReported)] == [31]


@pytest.mark.parametrize(
    ("number", "word", "at", "told"),
    [
        (22003, "Fatal", 1e6, [True]),
        (12001, "Non-fatal", 1e6, [False]),
        (20009, "Non-fatal", 1e6, []),
        (22003, "Fatal", 0.0, []),
    ],
)
async def test_a_switch_s_fault_is_told(
    tmp_path: Path, log: KernelLogPipe, number: int, word: str, at: float, told: list[bool]
) -> None:
    """Not an error that the switch has corrected, and not an old one."""
    node = Node(tmp_path, kernel_log=log.path)
    node.clock.advance(1000)
    async with node.running():
        await node.wait_verdict(0, Verdict.HEALTHY)
        log.say(f"nvidia-nvswitch0: SXid (PCI:0000:c1:00.0): {number}, {word}, Link 3 trouble", at=at)
        await anyio.sleep(0.2)
        facts = [fact.value for fact in node.told(GpuFaultReported)]
        assert [(fact.address, fact.is_fatal, bool(fact.devices)) for fact in facts] == [
            ("0000:c1:00.0", is_fatal, True) for is_fatal in told
        ]
