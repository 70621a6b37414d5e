"""Death at every step of a claim's life, and a boot that takes everything but the disk."""

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.faults.claims import loop
from tests.faults.claims.machine import Agent, Machine
from tests.faults.claims.scenario import UID, find_left, find_missing, make_api, prepare, render, unprepare
from tests.support.waiting import wait_until


def run_loop(directory: Path, share: str) -> dict[str, Any]:
    """The loop's own word on what it found; it is a process of its own, because it forks."""
    command = [sys.executable, "-m", loop.__name__, str(directory), "--share", share]
    done = subprocess.run(command, capture_output=True, text=True, timeout=1500, check=False)
    assert done.returncode == 0, done.stderr[-2000:]
    found: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return found


@pytest.mark.long
@pytest.mark.timeout(400)
def test_a_kill_at_any_step_loses_doubles_and_leaves_nothing(tmp_path: Path) -> None:
    """A sample of all steps, spread over the claim's life; `make nightly` takes all of them."""
    found = run_loop(tmp_path, "0/11")
    assert found["steps"] > 50
    assert found["killed"] > 5
    assert found["faults"] == {}


@pytest.mark.nightly
@pytest.mark.timeout(1600)
def test_every_kill_and_everything_after_it(tmp_path: Path) -> None:
    """Each step, with each of the ways in which life goes on."""
    found = run_loop(tmp_path, "0/1")
    assert found["killed"] > found["steps"]
    assert found["faults"] == {}


@pytest.mark.long
async def test_a_boot_takes_what_is_below_run_and_the_next_agent_brings_it_back(tmp_path: Path) -> None:
    """The kubelet's checkpoint still has the claim: without API server it is given the same, before it asks."""
    machine = Machine(tmp_path)
    async with Agent(machine, make_api()).at_work() as agent:
        before = await prepare(agent)
        # The check behind all these tests is not blind.
        assert len(await find_left(agent)) > 5
        assert await find_missing(agent) == []
    machine = machine.reboot()
    assert machine.list_specs() == []
    api = make_api()
    api.broken = "away"
    async with Agent(machine, api).at_work() as agent:
        await wait_until(machine.list_specs)
        assert await find_missing(agent) == []
        assert render(await prepare(agent)) == render(before)
        (new,) = [device.uuid for device in agent.prepared[UID].devices if device.is_made]
        assert new in (machine.specs / machine.list_specs()[0]).read_text()
        assert agent.prepared[UID].is_ready
        await unprepare(agent)
        assert await find_left(agent) == []


@pytest.mark.long
async def test_a_claim_whose_pod_did_not_outlive_the_boot_is_put_away(tmp_path: Path) -> None:
    machine = Machine(tmp_path)
    async with Agent(machine, make_api()).at_work() as agent:
        await prepare(agent)
    async with Agent(machine.reboot(), make_api()).at_work() as agent:
        await unprepare(agent)
        assert await find_left(agent) == []
