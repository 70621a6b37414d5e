"""Any device plugin of v1beta1 against the agent: registration, admission, memory, processor time.

Both in turns, each on a fresh node with the same fake driver and the same stand-in kubelet: what the machine does
meanwhile hits both alike. A plugin that loads NVML finds the fake driver's in its `LD_LIBRARY_PATH`.
"""

from collections.abc import Callable
from contextlib import AbstractContextManager
from pathlib import Path

from tests.bench.compare import Rows, join, render
from tests.bench.node import BenchNode, PluginProcess, bench_node
from tests.bench.rows import Row, to_json

ROUNDS_EACH = 200
SIZES = (1, 4, 8)
SHARES = ("p50", "p99")


def compare(command: str, directory: Path | None, rounds: int, pairs: int) -> str:
    """The agent and the plugin in turns: medians, ratios turn by turn, the same for the slowest."""
    turns: list[tuple[Rows, Rows]] = []
    for _ in range(pairs):
        ours, theirs = measure_agent(rounds), measure(command, directory, rounds)
        turns.append((_index(ours), _index(theirs)))
    return "\n".join(render(join(turns, share), "the other", share) for share in SHARES)


def measure(command: str, directory: Path | None, rounds: int) -> list[Row]:
    """Start it on a stand-in kubelet and admit pods of what it offers."""
    with bench_node(kubelet_dir=directory) as node:
        return _measure(node, node.running_plugin(command), rounds)


def measure_agent(rounds: int) -> list[Row]:
    """The same of the agent."""
    with bench_node() as node:
        return _measure(node, node.running_agent(), rounds)


def _measure(node: BenchNode, running: AbstractContextManager[PluginProcess], rounds: int) -> list[Row]:
    with running as plugin:
        plugin.wait_until(lambda: _has_registered(node, plugin))
        registered = node.kubelet.wait("registered", since=plugin.began)
        offered = node.kubelet.wait("list", since=plugin.began)
        rows = [
            Row("exec to Register", "ms", [1000 * (registered["at"] - plugin.began)]),
            Row("exec to advertised", "ms", [1000 * (offered["at"] - plugin.began)]),
        ]
        for size in (size for size in SIZES if size <= offered["healthy"]):
            millis, spent = _admit(node.kubelet.admit, plugin, size, rounds * ROUNDS_EACH, offered["resource"])
            rows.append(Row(f"prefer + Allocate, {size} of {offered['devices']}", "ms", millis))
            rows.append(Row(f"  processor time of the plugin each, {size}", "ms", [spent]))
        return [*rows, *(Row(f"memory, {kind.upper()}", "MiB", [plugin.memory_mib(kind)]) for kind in ("Pss", "Rss"))]


def _index(rows: list[Row]) -> Rows:
    return {str(row["name"]): row for row in to_json(rows)}


def _has_registered(node: BenchNode, plugin: PluginProcess) -> bool:
    """Whether it has; one that has ended never will."""
    status = plugin.process.poll()
    if status is not None:
        raise PluginEnded(status)
    return any(event["event"] == "registered" for event in node.kubelet.events)


class PluginEnded(Exception):
    """The plugin under measurement does not run."""

    def __init__(self, status: int) -> None:
        super().__init__(f"the plugin ended with {status} before it registered: run its command by hand to see why")


def _admit(
    admit: Callable[[int, int, str], list[float]], plugin: PluginProcess, size: int, rounds: int, resource: str
) -> tuple[list[float], float]:
    before = plugin.cpu_seconds()
    millis = admit(size, rounds, resource)
    return millis, 1000 * (plugin.cpu_seconds() - before) / rounds
