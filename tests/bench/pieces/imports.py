"""What each layer costs to load: time of the processor and memory that it adds to all that is below it.

A fresh interpreter loads the layers from the ground up, so that a third party is charged to the lowest layer that wants
it. Processor time, because a busy machine makes that no longer; resident memory, as nobody shares it with anyone here.
"""

import json
import subprocess
import sys
from pkgutil import walk_packages

import nodeagent
from tests.bench.rows import Row

LAYERS: dict[str, tuple[str, ...]] = {
    "model": ("nodeagent.model",),
    "core": ("nodeagent.core",),
    "config": ("nodeagent.config",),
    "rules": ("nodeagent.rules",),
    "edge.host": ("nodeagent.edge.host",),
    "edge.nvml": ("nodeagent.edge.nvml.agent.client",),
    "edge.grpc": ("nodeagent.edge.grpc",),
    "edge.gpu_manager": ("nodeagent.edge.gpu_manager",),
    "edge.kubelet": ("nodeagent.edge.kubelet",),
    "edge.mps": ("nodeagent.edge.mps",),
    "edge.cuda": ("nodeagent.edge.cuda.child",),
    "edge.nvsentinel": ("nodeagent.edge.nvsentinel",),
    "edge.container_runtime": ("nodeagent.edge.container_runtime",),
    "edge.http": ("nodeagent.edge.http",),
    "edge.kube": ("nodeagent.edge.kube",),
    **{
        f"components.{name}": (f"nodeagent.components.{name}",)
        for name in (
            "driver",
            "inventory",
            "health",
            "allocations",
            "deviceplugin",
            "cdi",
            "runtime",
            "exporter",
            "offering",
            "mig",
            "mps",
            "slices",
            "usage",
            "fractions",
            "claims",
            "devices",
            "labeler",
            "cluster",
            "node_requests",
            "signals",
            "repairs",
            "upgrades",
            "proof",
            "web",
        )
    },
    "app": ("nodeagent.app",),
    "extender": ("nodeagent.extender",),
}
"""From the ground up; of `edge.nvml` the agent's side, as the rest is the worker's."""

NOT_THE_AGENTS = (
    "nodeagent.config.imports",
    "nodeagent.edge.host.driver.cuda_check",
    "nodeagent.edge.kube.fleet",
    "nodeagent.edge.kube.lease",
)
"""What only commands, children and the extender load; the stubs generated for grpclib (`…_grpc`) are for tests and
simulations."""

CHILD = """
import gc, importlib, json, os, sys, time
gc.disable()
page = os.sysconf("SC_PAGE_SIZE")

def look():
    with open("/proc/self/statm") as file:
        return 1000 * time.process_time(), int(file.read().split()[1]) * page / 1048576

found, (at, had) = [], look()
found.append(("interpreter", at, had))
for name, modules in json.loads(sys.argv[1]):
    at, had = look()
    for module in modules:
        importlib.import_module(module)
    now, has = look()
    found.append((name, now - at, has - had))
print(json.dumps(found))
"""


def measure(rounds: int) -> list[Row]:
    """A row of time and one of memory for each layer, and for all together."""
    runs = [_load_all() for _ in range(rounds)]
    rows = []
    for number, (layer, _millis, _mib) in enumerate(runs[0]):
        rows += [
            Row(f"load {layer}, CPU", "ms", [run[number][1] for run in runs]),
            Row(f"load {layer}, RSS", "MiB", [run[number][2] for run in runs]),
        ]
    return [
        *rows,
        Row("load everything, CPU", "ms", [sum(millis for _, millis, _ in run) for run in runs]),
        Row("load everything, RSS", "MiB", [sum(mib for *_, mib in run) for run in runs]),
    ]


def list_modules(place: str) -> list[str]:
    """A package with all that is in it, or the one module."""
    parts = place.removeprefix("nodeagent.").split(".")
    found = walk_packages([f"{nodeagent.__path__[0]}/{'/'.join(parts)}"], f"{place}.")
    return [place, *(one.name for one in found if is_the_agents(one.name))]


def is_the_agents(name: str) -> bool:
    """Whether a running agent may load it."""
    return not name.startswith(NOT_THE_AGENTS) and not name.endswith(("__main__", "_grpc"))


def _load_all() -> list[tuple[str, float, float]]:
    plan = [(layer, [name for place in places for name in list_modules(place)]) for layer, places in LAYERS.items()]
    command = [sys.executable, "-c", CHILD, json.dumps(plan)]
    done = subprocess.run(command, stdout=subprocess.PIPE, check=True, text=True)
    found: list[tuple[str, float, float]] = json.loads(done.stdout)
    return found
