"""What a pod with a part of a GPU waits for: two durable promises at its admission, its binding at its start.

Asked as the kubelet's gRPC for Go asks, with a hundred pods of its kind on the node, whose records the agent reads at
each start to find whose the ids are. A pod that has come stays, as on a node that fills up: each turn takes a fresh one
from 75 pods to 125. The state lies on the disk and the specifications in memory, where /var/run is.
"""

import tempfile
import time
from pathlib import Path

from tests.bench.around.node import Admissions, bench_node
from tests.bench.rows import Row
from tests.bench.whole.admission import write_records

TURNS = 6
ROUNDS = 50
STANDING = 75
STARTS = 10
SETTLE_SECONDS = 2.0
MORE_TIMES, MORE_MIB = 1.05, 3.0
MEMORY_PLACE = Path("/dev/shm")
RECORDS = 3
"""Two promises and a binding."""
CORE, MEMORY = "tencent.com/vcuda-core", "tencent.com/vcuda-memory"
SETTINGS = (
    "gpus.source=simulated:dgx-h100",
    "fractions.enabled=true",
    'doors.rules=[{"gpus": ["all"], "door": "fractions"}]',
)


def measure(turns: int = TURNS) -> list[Row]:
    """One of each hundredth and block, so that all pods have room; and what others than the agent have of it."""
    found, spent = Admissions([], [], []), list[float]()
    for _ in range(turns):
        with tempfile.TemporaryDirectory(dir=MEMORY_PLACE if MEMORY_PLACE.is_dir() else None) as cdi:
            settings = (*SETTINGS, f"cdi.dir={cdi}")
            turn, milliseconds = _fill_node([word for setting in settings for word in ("--set", setting)])
        found.millis.extend(turn.millis)
        found.allocate_millis.extend(turn.allocate_millis)
        found.nothing_millis.extend(turn.nothing_millis)
        spent.append(milliseconds)
    syncs = write_records(RECORDS * ROUNDS * turns)
    starts = [whole - allocating for whole, allocating in zip(found.millis, found.allocate_millis, strict=True)]
    disk = [sum(syncs[number : number + RECORDS]) for number in range(0, len(syncs), RECORDS)]
    name = "Allocate of both + PreStart, durable, 100 pods"
    return [
        Row(name, "ms", found.millis, limit=4.0),
        Row(f"{name}, slowest", "ms", found.millis, limit=12.0, limit_is_for=0.99),
        Row("  of that, both Allocates", "ms", found.allocate_millis),
        Row("  of that, the start of the container", "ms", starts),
        Row("  the client, the way and gRPC alone: four calls for nothing", "ms", found.nothing_millis),
        Row("  the disk alone: three records written and synced", "ms", disk),
        Row("  processor time of the agent each, with all of these calls and preferences", "ms", spent),
        *_measure_more(),
    ]


def _measure_more(starts: int = STARTS) -> list[Row]:
    """What a start takes more where half of the GPUs are given in parts, in turns with one that knows of no parts."""
    simulated = ["--set", "gpus.source=simulated:dgx-h100"]
    halves = ["fractions.enabled=true", 'doors.rules=[{"gpus": ["4", "5", "6", "7"], "door": "fractions"}]']
    on = [*simulated, *(word for setting in halves for word in ("--set", setting))]
    pairs = [(_start(simulated), _start(on)) for _ in range(starts + 1)][1:]
    times = [[two[place] / one[place] for one, two in pairs] for place in (0, 1)]
    return [
        Row("fractions on, exec to Register, times as long", "x", times[0], limit=MORE_TIMES),
        Row("fractions on, exec to /readyz, times as long", "x", times[1]),
        Row("fractions on, more memory (PSS)", "MiB", [two[2] - one[2] for one, two in pairs], limit=MORE_MIB),
    ]


def _start(words: list[str]) -> tuple[float, float, float]:
    """Seconds until the first Register and until it is ready, and the memory of agent and worker a while later."""
    with bench_node() as node, node.running_agent(*words) as agent:
        registered = node.kubelet.wait("registered", since=agent.began)["at"] - agent.began
        ready = agent.wait_ready()
        time.sleep(SETTLE_SECONDS)
        return registered, ready, agent.memory_mib("Pss")


def _fill_node(words: list[str]) -> tuple[Admissions, float]:
    """Pods upon pods that stand; and the milliseconds of processor time that the agent takes for each."""
    with bench_node() as node, node.running_agent(*words) as agent:
        node.kubelet.wait("list", since=agent.began, resource=MEMORY)
        agent.wait_ready()
        node.kubelet.admit_apart(1, 0, CORE, also={MEMORY: 1}, standing=STANDING)
        before = agent.cpu_seconds()
        found = node.kubelet.admit_apart(1, ROUNDS, CORE, also={MEMORY: 1})
        return found, (agent.cpu_seconds() - before) * 1000 / ROUNDS
