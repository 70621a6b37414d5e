"""The runtime component on virtual time, beside a runtime that does as the test says."""

import anyio
import pytest
from msgspec.structs import replace

from nodeagent.components.runtime.component import SHIM_SECONDS
from nodeagent.core.life.report import Degraded
from nodeagent.model.allocation import Allocation, AllocationTable
from nodeagent.model.events import RuntimeConfigured, RuntimeRestarted
from nodeagent.model.ids import DeviceId, ResourceName
from nodeagent.model.runtime import CdiState, RuntimeKind, RuntimeState
from tests.component.runtime.fakes import CRIO, MAIN, START, FakeRuntime
from tests.component.runtime.surroundings import COMMAND, Surroundings

pytestmark = pytest.mark.virtual_time

HELD = AllocationTable(
    allocations=(Allocation(number=1, resource=ResourceName("r"), devices=(DeviceId("d"),), since_seconds=0.0),)
)


async def test_where_cdi_is_on_nothing_is_written() -> None:
    """An hour of looks at containerd 2, managed or not, changes no file and restarts nothing."""
    around = Surroundings(FakeRuntime(version="2.1.4"), manage=True, restart="now")
    around.runtime.forget_start()
    around.runtime.files[MAIN] = START + b"enable_cdi = true\n"
    around.runtime.forget_start()
    async with around.running():
        await anyio.sleep(3600)
        assert (around.runtime.writes, around.runtime.restarts) == (0, [])
        assert around.state.cdi_enabled is True
        assert around.found == {}


async def test_the_shim_is_written_with_everything_else_in_one_step() -> None:
    """It is waited for at the start; one restart brings all of it into force."""
    around = Surroundings(FakeRuntime(), manage=True, restart="now", shim=True)

    async def put_in_place() -> None:
        await anyio.sleep(1)
        around.bus.publish_state(CdiState(generation=1, shim="/shim"), source="cdi")

    async with anyio.create_task_group() as tasks, around.running_beside(put_in_place, tasks):
        await anyio.sleep(10)
        assert b'BinaryName = "/shim"' in around.runtime.files[MAIN]
        assert b"enable_cdi = true" in around.runtime.files[MAIN]
        assert len(around.runtime.restarts) == 1
        assert around.found == {}


async def test_a_shim_that_comes_late_is_written_when_it_is_there() -> None:
    """Pods that need none do not wait for it."""
    around = Surroundings(FakeRuntime(), manage=True, shim=True)
    began = anyio.current_time()
    async with around.running():
        assert anyio.current_time() - began == pytest.approx(SHIM_SECONDS)
        assert b"/shim" not in around.runtime.files[MAIN]
        around.bus.publish_state(CdiState(generation=1), source="cdi")
        around.bus.publish_state(HELD, source="allocations")
        await anyio.sleep(1)
        assert b"/shim" not in around.runtime.files[MAIN]
        around.bus.publish_state(CdiState(generation=2, shim="/shim"), source="cdi")
        await anyio.sleep(1)
        assert b'BinaryName = "/shim"' in around.runtime.files[MAIN]


async def test_unmanaged_it_only_says_that_cdi_is_off() -> None:
    """A person reads which file and what to run; nothing is written."""
    around = Surroundings(FakeRuntime())
    async with around.running():
        await anyio.sleep(60)
        assert list(around.found) == ["runtime-cdi-off"]
        assert MAIN in around.found["runtime-cdi-off"]
        assert around.state == RuntimeState(
            kind=RuntimeKind.CONTAINERD,
            version="1.7.22",
            socket="/run/containerd/containerd.sock",
            config_file=MAIN,
            cdi_enabled=False,
        )
        assert around.runtime.writes == 0


async def test_what_is_changed_while_it_acts_is_put_back_at_once() -> None:
    """The last look of a step that restarted has seen it, so nothing would tell of it before the next review."""
    around = Surroundings(FakeRuntime(), manage=True, restart="now")

    async def meddle() -> None:
        with around.bus.listen(RuntimeRestarted, client="test") as restarts:
            await anext(restarts)
            around.runtime.meddle(around.runtime.files[MAIN].replace(b"enable_cdi = true", b"enable_cdi = false"))

    async with anyio.create_task_group() as tasks, around.running_beside(meddle, tasks):
        await anyio.sleep(2)
        assert b"enable_cdi = true" in around.runtime.files[MAIN]
        assert (around.runtime.writes, len(around.runtime.restarts)) == (2, 1)
        assert around.found == {}


async def test_managed_it_writes_and_names_the_restart() -> None:
    """With the policy `never` the command is in the condition, until somebody has run it."""
    around = Surroundings(FakeRuntime(), manage=True)
    async with around.running():
        assert b"enable_cdi = true" in around.runtime.files[MAIN]
        assert around.found == {"runtime-restart-needed": COMMAND}
        assert around.state.restart_needed == COMMAND
        around.runtime.forget_start()
        await anyio.sleep(31)
        assert around.found == {}
        assert around.state.cdi_enabled is True


async def test_with_the_policy_now_it_restarts_once() -> None:
    """Written, restarted, verified; the bus is told both."""
    around = Surroundings(FakeRuntime(), manage=True, restart="now")
    with around.bus.listen(RuntimeConfigured, RuntimeRestarted, client="test") as facts:
        async with around.running():
            assert around.found == {}
            assert len(around.runtime.restarts) == 1
            assert (await anext(facts)).value == RuntimeConfigured(paths=(MAIN,))
            assert (await anext(facts)).value == RuntimeRestarted(command=COMMAND)
            await anyio.sleep(3600)
            assert len(around.runtime.restarts) == 1


async def test_a_daemon_whose_unit_nobody_knows_is_not_restarted() -> None:
    """No other is in its place; the condition says what to do, and the setting that it names does it."""
    runtime = FakeRuntime()
    runtime.socket = "/srv/second/containerd.sock"
    around = Surroundings(runtime, manage=True, restart="now")
    async with around.running():
        assert b"enable_cdi = true" in runtime.files[MAIN]
        advice = around.found.pop("runtime-restart-needed")
        assert advice == around.state.restart_needed
        assert advice.startswith(f"the unit of the process behind {runtime.socket} cannot be told: ")
        assert "`runtime.restart_command`" in advice
        await anyio.sleep(3600)
        assert (around.found, runtime.restarts) == ({"runtime-restart-needed": advice}, [])
        around.configure(restart_command=("sv", "restart", "second"))
        await anyio.sleep(60)
        assert (around.found, runtime.commands) == ({}, [("sv", "restart", "second")])


async def test_a_second_daemon_is_restarted_by_its_own_unit() -> None:
    """Never by that of the distribution's."""
    runtime = FakeRuntime()
    runtime.socket, runtime.unit = "/srv/second/containerd.sock", "second.service"
    around = Surroundings(runtime, manage=True, restart="now")
    async with around.running():
        assert (around.found, runtime.commands) == ({}, [("systemctl", "restart", "second.service")])


async def test_with_the_policy_when_idle_it_waits_for_the_last_pod() -> None:
    """While any device is held, and while that is not known, nothing is restarted."""
    around = Surroundings(FakeRuntime(), manage=True, restart="when_idle")
    async with around.running():
        assert around.found == {"runtime-restart-needed": COMMAND}
        around.bus.publish_state(HELD, source="test")
        await anyio.sleep(60)
        assert around.runtime.restarts == []
        around.bus.publish_state(AllocationTable(), source="test")
        await anyio.sleep(1)
        assert len(around.runtime.restarts) == 1
        assert around.found == {}


@pytest.mark.parametrize("fault", ["breaks_when_restarted", "ignores_cdi"])
async def test_a_restart_that_does_not_help_is_rolled_back(fault: str) -> None:
    """The file is as before, the runtime runs with it, and the same is not tried again."""
    around = Surroundings(FakeRuntime(), manage=True, restart="now")
    setattr(around.runtime, fault, True)
    async with around.running():
        await anyio.sleep(3600)
        assert around.runtime.files[MAIN] == START
        assert around.runtime.alive
        assert len(around.runtime.restarts) == 2
        assert "runtime-restart-failed" in around.found
        assert around.runtime.writes == 1
        setattr(around.runtime, fault, False)
        around.configure(restart_timeout_seconds=20.0)
        around.runtime.meddle(START + b"# mended\n")
        await anyio.sleep(10)
        assert around.found == {}


async def test_what_is_changed_while_it_restarts_is_no_failed_restart() -> None:
    """It is put back at once, as at any other time; it is in force since that restart."""
    around = Surroundings(FakeRuntime(), manage=True, restart="now")
    around.runtime.meddled_with = START + b"# theirs\n"
    with around.bus.listen(RuntimeConfigured, RuntimeRestarted, client="test") as facts:
        async with around.running():
            await anyio.sleep(5)
            assert b"# theirs\n" in around.runtime.files[MAIN]
            assert b"enable_cdi = true" in around.runtime.files[MAIN]
            assert (len(around.runtime.restarts), around.found) == (1, {})
            told = [(await anext(facts)).value for _ in range(3)]
    written = RuntimeConfigured(paths=(MAIN,))
    assert told == [written, RuntimeRestarted(command=COMMAND), replace(written, repair=True)]


async def test_a_file_that_is_broken_while_it_restarts_brings_no_second_restart() -> None:
    """The runtime runs; restarted with that file it would not come back."""
    around = Surroundings(FakeRuntime(), manage=True, restart="now")
    around.runtime.meddled_with = b"version =\n"
    async with around.running():
        await anyio.sleep(3600)
        assert around.runtime.files[MAIN] == b"version =\n"
        assert len(around.runtime.restarts) == 1
        assert "line 1, column 10" in around.found["runtime-config-blocked"]
        assert "runtime-restart-failed" not in around.found


async def test_a_restart_that_was_pending_before_is_rolled_back_from_the_record() -> None:
    """An agent that did not write the files itself gives back what the record says."""
    around = Surroundings(FakeRuntime(), manage=True, restart="now")
    around.runtime.files[MAIN] = START + b"enable_cdi = true\n"
    around.runtime.breaks_when_restarted = True
    async with around.running():
        await anyio.sleep(1)
        assert around.runtime.files[MAIN] == START
        assert around.runtime.alive


async def test_what_somebody_undoes_is_put_back_three_times_an_hour() -> None:
    """Each time within two seconds; then it is a conflict that names the file, and a new hour begins anew."""
    around = Surroundings(FakeRuntime(), manage=True)
    async with around.running():
        around.runtime.forget_start()
        for _ in range(3):
            around.runtime.meddle(START)
            await anyio.sleep(2)
            assert b"enable_cdi = true" in around.runtime.files[MAIN]
        around.runtime.meddle(START)
        await anyio.sleep(60)
        assert around.runtime.files[MAIN] == START
        assert around.found["runtime-config-conflict"] == (
            f"{MAIN} (plugins.io.containerd.grpc.v1.cri.enable_cdi is missing, not true)"
            " lost our setting again after 3 repairs within the hour"
        )
        assert around.bus.latest(Degraded, "runtime") is not None
        await anyio.sleep(3600)
        assert b"enable_cdi = true" in around.runtime.files[MAIN]
        assert "runtime-config-conflict" not in around.found


async def test_a_change_that_the_runtime_refuses_is_not_written() -> None:
    """Its own tool has the last word."""
    around = Surroundings(FakeRuntime(), manage=True)
    around.runtime.refuses = "containerd refuses the new configuration"
    async with around.running():
        assert around.runtime.files[MAIN] == START
        assert around.found == {"runtime-config-blocked": "containerd refuses the new configuration"}


async def test_a_broken_file_is_named_and_left_alone() -> None:
    """Line and column are in the condition; once it is mended, it is configured."""
    around = Surroundings(FakeRuntime(), manage=True)
    around.runtime.meddle(b"version =\n")
    async with around.running():
        assert "line 1, column 10" in around.found["runtime-config-blocked"]
        assert around.runtime.files[MAIN] == b"version =\n"
        around.runtime.meddle(START)
        await anyio.sleep(3)
        assert b"enable_cdi = true" in around.runtime.files[MAIN]


async def test_what_a_trial_disproves_is_not_written_and_not_tried_again() -> None:
    """The daemon's own words are in the condition; another file is another trial."""
    around = Surroundings(FakeRuntime(), manage=True)
    around.runtime.fails_on_the_side = "no runc"
    async with around.running():
        assert "no runc: nothing was written" in around.found["runtime-config-blocked"]
        tried = around.runtime.trials
        await anyio.sleep(300)
        assert (around.runtime.trials, around.runtime.writes) == (tried, 0)
        around.runtime.meddle(START + b"# mended\n")
        await anyio.sleep(3)
        assert around.runtime.trials > tried
        around.runtime.fails_on_the_side = ""
        around.runtime.meddle(START)
        await anyio.sleep(3)
        assert around.runtime.writes == 1


@pytest.mark.parametrize("reason", ["", "only root can start containerd"])
async def test_whether_a_change_was_proved_is_told(reason: str) -> None:
    """With the fact that it was written, which it is in both cases."""
    around = Surroundings(FakeRuntime(), manage=True)
    around.runtime.no_trial = reason
    with around.bus.listen(RuntimeConfigured, client="test") as facts:
        async with around.running():
            assert (await anext(facts)).value.unproved == reason


async def test_a_runtime_that_is_away_is_waited_for() -> None:
    """It is a condition, and nothing is written meanwhile."""
    around = Surroundings(FakeRuntime(), manage=True)
    around.runtime.alive = False
    async with around.running():
        assert "runtime-not-found" in around.found
        assert around.state.kind is RuntimeKind.UNKNOWN
        assert around.runtime.writes == 0
        around.runtime.alive = True
        await anyio.sleep(31)
        assert around.runtime.writes == 1


async def test_two_runtimes_are_not_guessed_between() -> None:
    """A reload that says which one is meant ends it."""
    around = Surroundings(FakeRuntime(), manage=True)
    around.runtime.also = (CRIO,)
    async with around.running():
        assert "both answer" in around.found["runtime-not-found"]
        around.configure(kind="containerd")
        await anyio.sleep(1)
        assert around.runtime.writes == 1


async def test_a_node_that_does_not_answer_is_a_condition() -> None:
    """The component lives on and comes back by itself."""
    around = Surroundings(FakeRuntime())
    around.runtime.broken = "no answer about /etc"
    async with around.running():
        assert around.found == {"runtime-config-blocked": "no answer about /etc"}
        around.runtime.broken = ""
        await anyio.sleep(31)
        assert list(around.found) == ["runtime-cdi-off"]


@pytest.mark.parametrize(("manage", "codes"), [(False, []), (True, ["runtime-not-found"])])
async def test_a_node_without_sign_of_a_runtime_matters_only_to_whom_it_manages(manage: bool, codes: list[str]) -> None:
    """An agent whose container does not see the sockets has nothing to change, unless it was told to."""
    around = Surroundings(FakeRuntime(), manage=manage)
    around.runtime.gone = True
    async with around.running():
        assert list(around.found) == codes
        assert around.state.problem
