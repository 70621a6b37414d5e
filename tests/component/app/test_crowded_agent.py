"""A whole agent with few descriptors, and somebody who opens more connections than it may have files open.

The attack of record: silent connections to the HTTP port up to the limit of descriptors. No probe was answered, no
command, and no new kubelet; one log line came 464,499 times in 71 seconds.
"""

import http.client
import statistics
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from tests.bench.around.node import BenchNode, bench_node, read_memory_kib
from tests.support.programs.agent_process import AgentProcess, run_command, running_agent
from tests.support.wire.crowding import Crowd, crowding

DESCRIPTORS = 256
CONNECTIONS = 400
SECONDS = 4.0
LONG_SECONDS = 60.0
LATE_SECONDS = 5.0
"""Generous: what matters is that everything answers, and a probe's own limit may be a second on a quiet machine."""
TRIES = 3
"""The kubelet's own `failureThreshold`: from loopback, a probe that is held up between its connect and its request may
find that newer ones have taken its place."""
ADMISSION_P99_MILLIS = 2000.0
GROWTH_KIB = 48 * 1024
LOG_BYTES = 64 * 1024
RATES = {"silent": b"", "half a header": b"GET / HTTP/1.1\r\nHost: 127.0.0.1\r\nX-Slow: a"}


class Watched:
    """What the agent did while it was attacked."""

    def __init__(self) -> None:
        self.probe_seconds: list[float] = []
        self.status_codes: list[int] = []
        self.admission_millis: list[float] = []


@contextmanager
def attacked(said: bytes) -> Iterator[tuple[BenchNode, AgentProcess, Crowd]]:
    """An agent that serves a kubelet, and the attacker, both for as long as the block lasts."""
    with (
        bench_node() as node,
        running_agent(
            node.directory, *node.list_settings(0), "--set", "http.listen=127.0.0.1:0", descriptors=DESCRIPTORS
        ) as agent,
    ):
        node.kubelet.wait("list", healthy=8)
        agent.wait_for("/readyz", "ready")
        agent.wait_for("/api/v1/conditions", "descriptors-few")
        with crowding(int(agent.url.rstrip("/").rsplit(":", 1)[1]), CONNECTIONS, said) as crowd:
            yield node, agent, crowd


def watch(node: BenchNode, agent: AgentProcess, seconds: float) -> Watched:
    """Probe, ask and admit pods again and again."""
    watched, end = Watched(), time.monotonic() + seconds
    while time.monotonic() < end:
        began = time.monotonic()
        probe(agent)
        watched.probe_seconds.append(time.monotonic() - began)
        status, _ = agent.post("/api/v1/reload", {})
        watched.status_codes.append(status)
        watched.admission_millis += node.kubelet.admit(1, 10)
    return watched


def probe(agent: AgentProcess) -> None:
    """As the kubelet does: one answer is enough."""
    for tries_left in reversed(range(TRIES)):
        try:
            assert agent.get("/livez") == (200, "alive\n")
        except (OSError, http.client.HTTPException):
            if not tries_left:
                raise
        else:
            return


def hold(seconds: float, said: bytes) -> None:
    """Everything answers in time and nothing grows, for so long."""
    with attacked(said) as (node, agent, crowd):
        time.sleep(0.5)  # until the attacker has what it can get
        before = read_memory_kib(agent.process.pid, "Rss")
        watched = watch(node, agent, seconds)
        status = run_command(node.directory, "status", *node.list_settings(0))
        after, descriptors = read_memory_kib(agent.process.pid, "Rss"), count_descriptors(agent)
        opened = crowd.opened
        log = "".join(agent.output)
    assert opened > CONNECTIONS, "the attacker's connections were never closed: was there an attack?"
    assert status.returncode in (0, 1), status.stderr
    assert "GPU" in status.stdout
    assert max(watched.probe_seconds) < LATE_SECONDS
    assert set(watched.status_codes) == {200}
    assert statistics.quantiles(watched.admission_millis, n=100)[98] < ADMISSION_P99_MILLIS
    assert descriptors < DESCRIPTORS - 32
    assert after - before < GROWTH_KIB
    assert len(log) < LOG_BYTES, log[-2000:]


def count_descriptors(agent: AgentProcess) -> int:
    """Files that the agent has open."""
    return len(list(Path(f"/proc/{agent.process.pid}/fd").iterdir()))


@pytest.mark.long
@pytest.mark.parametrize("said", RATES.values(), ids=RATES.keys())
def test_connections_that_say_nothing_disable_nothing(said: bytes) -> None:
    """Probe, command line, admin socket and admissions answer, memory and log stay small."""
    hold(SECONDS, said)


@pytest.mark.nightly
@pytest.mark.slow
@pytest.mark.timeout(300)
@pytest.mark.parametrize("said", RATES.values(), ids=RATES.keys())
def test_nothing_grows_in_a_minute_of_it(said: bytes) -> None:
    """The same for longer than any deadline of a connection."""
    hold(LONG_SECONDS, said)
