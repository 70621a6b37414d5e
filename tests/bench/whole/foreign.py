"""Any device plugin of v1beta1 against the agent: registration, admission, memory, processor time.

Both in turns, each on a fresh node with the same fake driver and the same stand-in kubelet: what the machine does
meanwhile hits both alike. A plugin that loads NVML finds the fake driver's in its `LD_LIBRARY_PATH`, and its
configuration in the file that `{config}` stands for.
"""

import json
from contextlib import AbstractContextManager
from pathlib import Path

from tests.bench.around.node import RESOURCE, Admissions, BenchNode, PluginProcess, bench_node
from tests.bench.compare import Rows, join, render
from tests.bench.rows import Row, index_rows

ROUNDS_EACH = 200
FIRST = 100
SIZES = (1, 4, 8)
SHARES = ("p50", "p99")


class SharesUntold(Exception):
    """The plugin has no way to learn how many shares it is to offer."""

    def __init__(self, command: str) -> None:
        super().__init__(
            f"--shares: --plugin {command!r} has no {{config}}, the file that says how many shares it offers"
        )


def compare(command: str, directory: Path | None, rounds: int, pairs: int, shares: int = 1) -> str:
    """The agent and the plugin in turns: medians, ratios turn by turn, the same for the slowest.

    Raises:
        SharesUntold: shares are wanted of a plugin that takes no configuration.
    """
    if shares > 1 and "{config}" not in command:
        raise SharesUntold(command)
    turns: list[tuple[Rows, Rows]] = []
    for _ in range(pairs):
        ours, theirs = measure_agent(rounds, shares), measure(command, directory, rounds, shares)
        turns.append((index_rows(ours), index_rows(theirs)))
    return "\n".join(render(join(turns, share), "the other", share) for share in SHARES)


def measure(command: str, directory: Path | None, rounds: int, shares: int = 1) -> list[Row]:
    """Start it on a stand-in kubelet and admit pods of what it offers."""
    with bench_node(kubelet_dir=directory) as node:
        config = node.directory / "plugin.yaml"
        config.write_text(json.dumps({"version": "v1", "sharing": _share(shares)}))
        return _measure(node, node.running_plugin(command.replace("{config}", str(config))), rounds)


def measure_agent(rounds: int, shares: int = 1) -> list[Row]:
    words = [word for key, value in _share(shares).items() for word in ("--set", f"sharing.{key}={json.dumps(value)}")]
    with bench_node() as node:
        return _measure(node, node.running_agent(*words), rounds)


def _share(shares: int) -> dict[str, object]:
    """The section `sharing` of a configuration in NVIDIA's form."""
    return {"timeSlicing": {"resources": [{"name": RESOURCE, "replicas": shares}]}} if shares > 1 else {}


def _measure(node: BenchNode, running: AbstractContextManager[PluginProcess], rounds: int) -> list[Row]:
    with running as plugin:
        plugin.wait_until(lambda: _has_registered(node, plugin))
        registered = node.kubelet.wait("registered", since=plugin.began)
        offered = node.kubelet.wait("list", since=plugin.began)
        rows = [
            Row("exec to Register", "ms", [1000 * (registered["at"] - plugin.began)]),
            Row("exec to advertised", "ms", [1000 * (offered["at"] - plugin.began)]),
        ]
        first = node.kubelet.admit_apart(1, FIRST, offered["resource"])
        rows += _render(f"the first {FIRST}, 1 of {offered['devices']}", first)
        for size in (size for size in SIZES if size <= offered["healthy"]):
            before = plugin.cpu_seconds()
            admitted = node.kubelet.admit_apart(size, rounds * ROUNDS_EACH, offered["resource"])
            spent = 1000 * (plugin.cpu_seconds() - before) / (rounds * ROUNDS_EACH)
            rows += _render(f"{size} of {offered['devices']}", admitted)
            rows.append(Row(f"  processor time of the plugin each, {size}", "ms", [spent]))
        return [*rows, *(Row(f"memory, {kind.upper()}", "MiB", [plugin.memory_mib(kind)]) for kind in ("Pss", "Rss"))]


def _render(of_what: str, admitted: Admissions) -> list[Row]:
    return [
        Row(f"prefer + Allocate, {of_what}", "ms", admitted.millis),
        Row(f"  Allocate alone, {of_what}", "ms", admitted.allocate_millis),
    ]


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
