"""Pods that come while a GPU of the node is proven, beside pods of a node that proves none, in turns on one machine.

Each pod takes all GPUs, and so the one that is proven. The prover is at a call of the driver that does not return, as
on a GPU with much memory: it takes no processor, and must be killed. GPUs are proven again after seconds, where an
agent in use waits for a day.
"""

import json
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from tests.bench.around.node import BenchNode, PluginProcess, bench_node
from tests.bench.rows import Row
from tests.bench.whole.admission import settle
from tests.fakes.cuda.driver import HANGS, FakeDriver
from tests.faults.steps.armed import HASTE, SECONDS

TURNS = 100
GPUS, ROOM_BYTES = 8, 4 << 20
PROVER = b"nodeagent.edge.cuda.prover"
PATIENCE_SECONDS, STILL_SECONDS = 60.0, 0.1
SOON_FREE = ("--set", "journal.free_after_seconds=1", "--set", "kubelet.pod_resources_poll_seconds=0.5")
SETTINGS = {"proof.idle": "quick", "proof.free_seconds": "1", "proof.spread_seconds": "0"}


def measure() -> list[Row]:
    millis: dict[str, list[float]] = {"without a proof": [], "in a proof": []}
    gone: list[float] = []
    with (
        bench_node() as plain,
        plain.running_agent(*SOON_FREE) as off,
        bench_node() as proving,
        _running_prover(proving) as (on, cuda),
    ):
        settle(plain, off, devices=GPUS)
        settle(proving, on, devices=GPUS)
        for turn in range(TURNS):
            _wait_proving(cuda)
            (prover,) = _list_provers(on)
            _wait_hung(prover)
            if turn % 2:
                millis["without a proof"] += plain.kubelet.admit(GPUS, 1)
            millis["in a proof"] += proving.kubelet.admit(GPUS, 1)
            gone.append(_wait_gone(prover))
            if not turn % 2:
                millis["without a proof"] += plain.kubelet.admit(GPUS, 1)
    rows = [Row(f"prefer + Allocate, 8 of 8, {name}", "ms", found) for name, found in millis.items()]
    ratio = rows[1].percentile(0.99) / rows[0].percentile(0.99)
    return [
        *rows,
        Row("  p99 in a proof, of p99 without", "x", [ratio], limit=1.1),
        Row("  a killed prover is gone after the pod's start", "ms", gone, limit=100, limit_is_for=0.99),
    ]


@contextmanager
def _running_prover(node: BenchNode) -> Iterator[tuple[PluginProcess, FakeDriver]]:
    uuids = tuple(node.fake.gpu(gpu).uuid.decode() for gpu in range(GPUS))
    cuda = FakeDriver(
        node.directory,
        memory=(ROOM_BYTES,) * GPUS,
        proves=True,
        uuids=uuids,
        fail={"cuMemcpyDtoHAsync_v2": f"{HANGS}@6"},
    )
    environment = json.dumps({**node.fake.environment, **cuda.environ()})
    settings = {**SETTINGS, "driver.worker_environment": environment}
    words = (word for key, value in settings.items() for word in ("--set", f"{key}={value}"))
    with node.running_agent(
        *SOON_FREE, *words, module="tests.faults.steps.armed", environment={HASTE: SECONDS}
    ) as agent:
        yield agent, cuda


def _wait_proving(cuda: FakeDriver) -> None:
    """Until a prover has memory of a GPU."""
    until = time.perf_counter() + PATIENCE_SECONDS
    while not any(any(used) for used in cuda.read().used.values()):
        if time.perf_counter() > until:
            raise TimeoutError("no GPU is proven")
        time.sleep(0.005)


def _list_provers(agent: PluginProcess) -> list[Path]:
    places = [Path(f"/proc/{pid}") for pid in agent.family()]
    return [place for place in places if PROVER in (place / "cmdline").read_bytes()]


def _wait_hung(prover: Path) -> None:
    """Until the prover takes no processor any more: what the fake driver computes itself a GPU would compute."""
    before = -1
    while (now := _read_ticks(prover)) != before:
        before = now
        time.sleep(STILL_SECONDS)


def _read_ticks(prover: Path) -> int:
    """The processor time of a process in ticks, that of its threads included."""
    fields = (prover / "stat").read_text().rpartition(")")[2].split()
    return int(fields[11]) + int(fields[12])


def _wait_gone(prover: Path) -> float:
    began = time.perf_counter()
    while prover.exists():
        time.sleep(0.0005)
    return (time.perf_counter() - began) * 1000
