"""What a fleet costs the API server: the requests of many real agents, each counted by the agent that makes them.

Each agent is a process of its own with eight simulated GPUs. Counts are no times: a busy machine does not change them.
`tests/integration/test_fleet.py` counts the same at the real API server.
"""

import contextlib
import tempfile
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from pathlib import Path

from prometheus_client.parser import text_string_to_metric_families

from tests.bench.around.api_server import api_server
from tests.bench.around.node import bench_node
from tests.bench.rows import Row
from tests.bench.whole.admission import settle as settle_node
from tests.fakes.apiserver import NODE
from tests.support.programs.agent_process import AgentProcess, running_agent

AGENTS = 40
PODS = 100
QUIET_SECONDS = 60.0
SETTLED_SECONDS = 6.0
"""So long nobody asks anything any more: longer than the longest that an agent gathers what it has to say."""
PATIENCE_SECONDS = 120.0
POLL_INTERVAL_SECONDS = 1.0
METRIC = "nodeagent_api_requests_total"
READS = ("GET", "WATCH")
START, WRITES, QUIET, LOST, WATCHES, ADMITTED = (
    "API requests of an agent, start to labels",
    "  of these, writes",
    "API requests of an agent, a quiet minute",
    "API requests of an agent, a GPU is lost",
    "watches that an agent holds",
    f"API requests of {PODS} pods",
)

Counts = tuple[Counter[str], ...]
"""Of each agent its requests by verb."""


def measure() -> list[Row]:
    """At the stand-in API server, which counts too."""
    with api_server() as api, tempfile.TemporaryDirectory(prefix="nf-") as name:
        names = [f"fleet-{number:02}" for number in range(AGENTS)]
        for each in names:
            api.server.add_node(each)
        kubeconfig = api.server.write_kubeconfig(Path(name) / "kubeconfig")
        with running_fleet(names, kubeconfig, Path(name)) as agents:
            rows = measure_fleet(agents)
            told = sum(sum(each.values()) for each in read_counts(agents))
            watches = api.server.watching
            asked = len(api.server.requests)
        assert abs(asked - told) <= AGENTS, f"the agents have counted {told} requests, the API server {asked}"
    return [*rows, Row(WATCHES, "", [watches / AGENTS], limit=1), _measure_pods()]


def _measure_pods() -> Row:
    """One agent on a node with a stand-in kubelet, which admits one pod after the other."""
    with api_server() as api, bench_node() as node:
        kubeconfig = api.server.write_kubeconfig(node.directory / "kubeconfig")
        settings = ("kubernetes.enabled=true", f"kubernetes.kubeconfig={kubeconfig}", f"node.name={NODE}")
        with node.running_agent(*(word for setting in settings for word in ("--set", setting))) as agent:
            settle_node(node, agent, devices=8)
            api.wait_label("nvidia.com/gpu.healthy.count", "8")
            time.sleep(SETTLED_SECONDS)
            before = len(api.server.requests)
            node.kubelet.admit(1, PODS)
            time.sleep(SETTLED_SECONDS)
            return Row(ADMITTED, "", [float(len(api.server.requests) - before)], limit=0)


@contextlib.contextmanager
def running_fleet(names: Sequence[str], kubeconfig: Path, directory: Path) -> Iterator[list[AgentProcess]]:
    """An agent for each of these nodes, all with their labels written."""
    with contextlib.ExitStack() as stack:
        agents = []
        for name in names:
            place = directory / name
            place.mkdir()
            settings = (f"kubernetes.kubeconfig={kubeconfig}", f"node.name={name}", "gpus.source=simulated:dgx-h100")
            words = (word for setting in settings for word in ("--set", setting))
            agents.append(stack.enter_context(running_agent(place, *words)))
        yield agents


def measure_fleet(agents: Sequence[AgentProcess]) -> list[Row]:
    """Of each agent: its start, a minute in which nothing happens, and a GPU that is lost."""
    begun = settle(agents)
    time.sleep(QUIET_SECONDS)
    quiet = read_counts(agents)
    for agent in agents:
        status, answer = agent.post("/api/v1/faults", {"fault": "lost", "arguments": ["3"]})
        assert status == 200, answer
    for agent in agents:
        agent.wait_for("/api/v1/labels", "nvidia.com/gpu.unhealthy.count")
    after = settle(agents)
    return [
        Row(START, "", list_totals(begun)),
        Row(WRITES, "", [float(count_writes(each)) for each in begun]),
        Row(QUIET, "", diff(quiet, begun), limit=0, limit_is_for=1.0),
        Row(LOST, "", diff(after, quiet)),
    ]


def settle(agents: Sequence[AgentProcess]) -> Counts:
    """The counts when nobody has asked anything for a while."""
    counts, since = read_counts(agents), time.monotonic()
    end = since + PATIENCE_SECONDS
    while time.monotonic() - since < SETTLED_SECONDS or not all(map(count_writes, counts)):
        assert time.monotonic() < end, "the agents do not come to rest"
        time.sleep(POLL_INTERVAL_SECONDS)
        now = read_counts(agents)
        if now != counts:
            counts, since = now, time.monotonic()
    return counts


def read_counts(agents: Sequence[AgentProcess]) -> Counts:
    return tuple(map(_read, agents))


def _read(agent: AgentProcess) -> Counter[str]:
    found: Counter[str] = Counter()
    for family in text_string_to_metric_families(agent.get("/metrics")[1]):
        for sample in family.samples:
            if sample.name == METRIC:
                found[sample.labels["verb"]] += int(sample.value)
    return found


def count_writes(counts: Counter[str]) -> int:
    return sum(count for verb, count in counts.items() if verb not in READS)


def list_totals(counts: Counts) -> list[float]:
    return [float(sum(each.values())) for each in counts]


def diff(after: Counts, before: Counts) -> list[float]:
    """Of each agent the requests between two looks, but for the watch, which begins anew every few minutes."""
    pairs = zip(after, before, strict=True)
    return [float(sum((one - other).values()) - (one - other)["WATCH"]) for one, other in pairs]
