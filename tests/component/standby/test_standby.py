"""`nodeagent run --standby`: a pod is ready beside the agent at work, and takes over when that agent has left."""

import signal
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path

import anyio
import pytest

from nodeagent.components.allocations.journal_format import encode_records
from nodeagent.components.allocations.ledger import FORMAT, Opened
from nodeagent.edge.host.files.journal_disk import JOURNAL_NAME
from tests.component.standby.harness import GPUS, STANDBY, hear, running, running_node, take_over
from tests.support.programs.agent_process import PATIENCE_SECONDS, AgentProcess, run_command
from tests.support.waiting import in_thread
from tests.support.wire.kubelets import NAMESPACE

PODS = 30
"""At least so many are admitted while one agent takes over from another, and after."""
PAUSE_SECONDS = 0.01
"""Between one pod and the next, while one agent takes over from another."""


@pytest.mark.slow
@pytest.mark.parametrize(
    ("minor", "sent"),
    [(36, signal.SIGTERM), (37, signal.SIGTERM), pytest.param(37, signal.SIGKILL, marks=pytest.mark.long)],
    ids=["told to stop, 1.36", "told to stop, 1.37", "killed"],
)
async def test_a_standby_takes_over_while_pods_come(short_dir: Path, minor: int, sent: signal.Signals) -> None:
    """Each pod has a GPU of its own by one answer, and the agent that leaves in order takes no GPU back."""
    async with running_node(short_dir, minor) as node:
        with running(short_dir, "first") as first:
            await in_thread(partial(hear, first, "agent_started"))
            await node.wait_offered()
            with running(short_dir, "second", *STANDBY) as second:
                await in_thread(partial(hear, second, "standby_began"))
                assert (await in_thread(partial(second.get, "/readyz")))[0] == 200
                await node.run_pod("long")
                handed_over = anyio.Event()

                async def hand_over() -> None:
                    await in_thread(partial(first.stop, sent))
                    await in_thread(partial(take_over, second))
                    handed_over.set()

                number = 0
                async with anyio.create_task_group() as tasks:
                    tasks.start_soon(hand_over)
                    while not handed_over.is_set() or number < PODS:
                        await node.run_pod(f"pod-{number}")
                        assert len(node.kubelet.holders()) == 2
                        node.kubelet.delete_pod(NAMESPACE, f"pod-{number}")
                        number += 1
                        await anyio.sleep(PAUSE_SECONDS)
                assert first.process.returncode == (0 if sent is signal.SIGTERM else -sent)
                await node.wait_offered()
                await node.run_pod("last")
                before, after = node.clients
                assert before.answers + after.answers == number + 2
                assert after.answers > 0
                assert [device.healthy for device in before.last] == [True] * GPUS
                assert await in_thread(second.stop) == 0


@contextmanager
def running_pair(directory: Path, *words: str) -> Iterator[tuple[AgentProcess, AgentProcess]]:
    """An agent at work, and a standby beside it."""
    with running(directory, "first") as first:
        hear(first, "agent_started")
        with running(directory, "second", *(words or STANDBY)) as second:
            hear(second, "standby_began")
            yield first, second


@pytest.mark.long
@pytest.mark.parametrize("patience", [(), ("--wait", "1s")], ids=["no patience", "some patience"])
def test_an_agent_that_stays_is_told_of_by_the_standby(short_dir: Path, patience: tuple[str, ...]) -> None:
    """Ready and without a trace on the node it waits on; once it has waited long, log and command say for whom."""
    with running_pair(short_dir, "--standby", *patience) as (first, second):
        line = hear(second, "standby_waited_long")
        assert f"process {first.process.pid} held {short_dir}/state/agent.lock" in line
        for path in ("/livez", "/readyz"):
            status, said = second.get(path)
            assert status == 200
            assert "longer than it should: stop the nodeagent" in said
        assert second.get("/metrics") == (200, "")
        where = ("--set", f"node.run_dir={short_dir}/second", "--set", f"http.listen={second.url.rpartition('/')[2]}")
        done = run_command(short_dir, "status", *where)
        assert done.returncode != 0
        assert f"this agent is a standby: process {first.process.pid} held" in done.stderr
        assert list((short_dir / "second").iterdir()) == []
        assert first.get("/livez")[0] == 200


@pytest.mark.long
def test_of_two_standbys_one_takes_over_and_then_the_other(short_dir: Path) -> None:
    """The other one waits on, ready, until that one has left."""
    with running_pair(short_dir) as (first, second), running(short_dir, "third", *STANDBY) as third:
        hear(third, "standby_began")
        pids = {str(each.process.pid): each for each in (second, third)}
        assert first.stop() == 0
        holder = ""
        while holder not in pids:
            holder = (short_dir / "state/agent.lock").read_text().partition(" ")[0]
        winner = pids.pop(holder)
        (other,) = pids.values()
        take_over(winner)
        assert other.get("/readyz")[0] == 200
        winner.process.send_signal(signal.SIGKILL)
        take_over(other)
        assert other.stop() == 0


@pytest.mark.long
def test_a_standby_told_to_stop_ends_at_once_and_disturbs_nobody(short_dir: Path) -> None:
    """With status 0, as nothing went wrong; the agent at work keeps its lock and its socket."""
    with running_pair(short_dir) as (first, second):
        assert second.stop() == 0
        assert "standby_took_over" not in (second.process.stderr.read() if second.process.stderr else "")
        assert (short_dir / "state/agent.lock").read_text().split()[0] == str(first.process.pid)
        assert first.get("/api/v1/gpus")[0] == 200


@pytest.mark.long
def test_a_standby_starts_at_once_where_nobody_is(short_dir: Path) -> None:
    """The first pod of a node does not wait for anybody."""
    with running(short_dir, "first", *STANDBY) as first:
        hear(first, "agent_started")
        assert "standby_began" not in "".join(first.output)
        assert first.stop() == 0


@pytest.mark.long
def test_a_version_that_cannot_read_the_journal_never_becomes_a_standby(short_dir: Path) -> None:
    """On the way back it would take over and then admit no pod: it ends before it is ready, and says why."""
    with running(short_dir, "first") as first:
        hear(first, "agent_started")
        first.wait_for("/readyz", "gate allocations_recovered passed")
        (short_dir / "state" / JOURNAL_NAME).write_bytes(encode_records([Opened(format=FORMAT + 1)], 0)[0])
        with running(short_dir, "second", *STANDBY) as second:
            assert second.process.wait(PATIENCE_SECONDS) == 2
            assert second.process.stderr is not None
            said = second.process.stderr.read()
        assert f"it has format {FORMAT + 1}, and this version reads formats 1 to {FORMAT}" in said
        assert "standby_began" not in said
        assert first.get("/api/v1/gpus")[0] == 200


@pytest.mark.long
def test_a_broken_configuration_never_becomes_a_standby(short_dir: Path) -> None:
    """The new pod ends with the reason before it is ready, and the agent at work goes on."""
    with running(short_dir, "first") as first:
        hear(first, "agent_started")
        with running(short_dir, "second", *STANDBY, "--set", "health.sample_secnods=1") as second:
            assert second.process.wait(PATIENCE_SECONDS) == 2
            assert second.process.stderr is not None
            said = second.process.stderr.read()
        assert "health.sample_secnods" in said
        assert "standby_began" not in said
        assert first.get("/api/v1/gpus")[0] == 200
