"""The driver's program in a process of its own: its command lines, its answers, and a command that never ends."""

from pathlib import Path

import anyio
import pytest

from nodeagent.edge.host.driver.tool_child import DriverToolChild, run_command, run_tool
from nodeagent.model.gpu import ComputeMode
from nodeagent.model.ids import PciAddress
from nodeagent.model.repairs import Outcome, Rung
from nodeagent.rules.repair.outcomes import read_answer
from tests.fakes.nvidia_smi.answers import ANSWERS
from tests.fakes.nvidia_smi.program import FakeSmi

ONE, TWO = PciAddress("0000:3b:00.0"), PciAddress("0000:5e:00.0")


@pytest.fixture
def smi(tmp_path: Path) -> FakeSmi:
    return FakeSmi(tmp_path / "smi")


async def test_the_program_is_asked_by_addresses_and_its_answer_is_passed_on(smi: FakeSmi) -> None:
    """The settings of a GPU, its reset and the reset of a bus are one command each."""
    tool = DriverToolChild(tool=(str(smi.program),))
    smi.give("incomplete", "done")
    refused = await tool.reset([ONE], is_bus=False, timeout_seconds=30)
    assert (refused.code, read_answer(refused, Rung.RESET).peers) == (255, (1, 2, 3))
    done = await tool.reset([ONE, TWO], is_bus=True, timeout_seconds=30)
    assert (done.code, done.said) == (0, ANSWERS["done"].said)
    assert (await tool.set_persistence(ONE, is_on=True)).code == 0
    assert (await tool.set_power_limit(TWO, 500_500)).code == 0
    assert (await tool.set_compute_mode(TWO, ComputeMode.EXCLUSIVE_PROCESS)).code == 0
    assert (await tool.set_application_clocks(TWO, 2619, 1500)).code == 0
    assert smi.read_log() == [
        f"--gpu-reset -i {ONE}",
        f"--gpu-reset bus -i {ONE},{TWO}",
        f"-i {ONE} -pm 1",
        f"-i {TWO} -pl 500.5",
        f"-i {TWO} -c EXCLUSIVE_PROCESS",
        f"-i {TWO} -ac 2619,1500",
    ]


async def test_a_command_without_an_end_is_abandoned_at_its_deadline(smi: FakeSmi) -> None:
    """The event loop goes on meanwhile, and nobody knows how the act ended."""
    smi.give("hang")
    ticks = 0

    async def tick() -> None:
        nonlocal ticks
        while True:
            await anyio.sleep(0.05)
            ticks += 1

    async with anyio.create_task_group() as tasks:
        tasks.start_soon(tick)
        answer = await DriverToolChild(tool=(str(smi.program),)).reset([ONE], is_bus=False, timeout_seconds=0.9)
        tasks.cancel_scope.cancel()
    assert answer.code is None
    assert "0.9 s" in answer.said
    assert read_answer(answer, Rung.RESET).outcome is Outcome.UNKNOWN
    assert ticks > 5


async def test_a_command_that_is_not_there_is_told() -> None:
    assert run_command(["/no/such"]) == {"code": 127, "said": "/no/such cannot be started: No such file or directory"}
    answer = await run_tool(["/no/such"], 30)
    assert read_answer(answer, Rung.RESET).outcome is Outcome.STOPPED


async def test_the_program_is_that_of_the_driver_root(tmp_path: Path) -> None:
    """With a root of its own the program runs below it; a child of no program at all is an answer, too."""
    answer = await DriverToolChild(f"{tmp_path}/none/").reset([ONE], is_bus=False, timeout_seconds=30)
    assert read_answer(answer, Rung.RESET).outcome is Outcome.STOPPED
    assert "chroot" in answer.describe()
