"""Settings that a reset takes back: put back by the agent that reset the GPU, or by whichever comes after it."""

import anyio
import pytest
from msgspec.structs import replace

from nodeagent.core.log.audit import Change, keeping
from nodeagent.model.repairs import Ending, Outcome, ToolAnswer
from tests.component.repairs.test_acting import ILL, ActingWorld, Host
from tests.support.gpus import gpu_uuid
from tests.support.virtual_time import FakeClock

pytestmark = pytest.mark.virtual_time


async def test_settings_that_the_reset_took_are_put_back_and_what_fails_is_told(clock: FakeClock) -> None:
    host = Host("done")
    host.lost_by_reset = {"power_limit_milliwatts": 1, "persistence_mode": False}
    async with ActingWorld(clock, host).running() as world:
        host.setting = ToolAnswer(code=4, said="no permission")
        await world.fail(3, ILL)
        await anyio.sleep(20)
    detail = world.session.attempts[0].detail
    assert "persistence mode of GPU 3 was not set off: exit code 4: no permission" in detail
    assert "persistence mode of GPU 3 was not set on: exit code 4: no permission" in detail
    assert world.session.attempts[0].kept == ()


async def test_the_settings_of_the_moment_are_kept_and_not_those_of_the_last_list(clock: FakeClock) -> None:
    """The last list may be from between a reset and the return of its settings."""
    host = Host("done")
    host.lost_by_reset = {"power_limit_milliwatts": 700_000}
    async with ActingWorld(clock, host).running() as world:
        host.gpus[gpu_uuid(3)] = replace(host.gpus[gpu_uuid(3)], power_limit_milliwatts=450_000)
        await world.fail(3, ILL)
        await anyio.sleep(20)
        assert host.done[-1] == "power 450000 3"


async def test_a_lost_power_limit_is_set_again(clock: FakeClock) -> None:
    host = Host("done")
    host.gpus = {uuid: replace(gpu, power_limit_milliwatts=500_000) for uuid, gpu in host.gpus.items()}
    host.lost_by_reset = {"power_limit_milliwatts": 700_000}
    async with ActingWorld(clock, host).running() as world:
        await world.fail(3, ILL)
        await anyio.sleep(20)
        assert host.done[-1] == "power 500000 3"
        assert world.session.ending is Ending.REPAIRED


async def test_settings_are_owed_until_they_are_back_however_many_agents_are_killed(clock: FakeClock) -> None:
    """The next agent is killed before it puts anything back; the one after does it once, and no step is told anew."""
    host = Host("hang")
    async with ActingWorld(clock, host).running() as world:
        await world.fail(3, ILL)
        memory = world.memory
        kept = {number: replace(one) for number, one in memory.kept.items()}
    memory.kept = kept
    async with ActingWorld(clock, host, memory).running(1.0):
        assert next(iter(memory.kept.values())).attempts[0].outcome is Outcome.UNKNOWN
    after, changes = Host(), list[Change]()
    after.gpus[gpu_uuid(3)] = replace(after.gpus[gpu_uuid(3)], persistence_mode=False)
    world = ActingWorld(clock, after, memory)
    world.judge({3: (ILL,)})
    with keeping(changes.append):
        async with world.running():
            await anyio.sleep(600)
    assert after.done == ["persistence on 3"]
    assert changes == []
    assert world.session.attempts[0].kept == ()


async def test_settings_are_put_back_once_the_driver_answers(clock: FakeClock) -> None:
    host = Host("strange")
    host.refuses_reading = True
    async with ActingWorld(clock, host).running() as world:
        await world.fail(3, ILL)
        host.gpus[gpu_uuid(3)] = replace(host.gpus[gpu_uuid(3)], persistence_mode=False)
        await anyio.sleep(60)
        assert host.done[-1] == "resume"
        host.refuses_reading = False
        await anyio.sleep(20)
        assert host.done[-1] == "persistence on 3"
        assert world.session.attempts[0].kept == ()
