"""What importing each layer costs: processor time and memory, after the layers below it, in a fresh process.

All modules of a layer are loaded, which a run of the agent does not do at once; what they need of other libraries
counts for the first layer that needs it.
"""

import json
import subprocess
import sys
import time
from importlib import import_module
from pathlib import Path

from tests.bench.rows import Row

LAYERS = ("model", "kernel", "edge", "config", "components", "app", "cli")
LEFT_OUT = ("nodeagent.edge.simulated", "nodeagent.edge.nvml.worker", "nodeagent.edge.nvml.launch")
"""Simulations, and what runs in the GPU worker alone."""
ROUNDS = 7
MIB = 1 << 20
PAGE_BYTES = 4096


def measure() -> list[Row]:
    """A row for the time and one for the memory of each layer."""
    rounds = [_measure_once() for _ in range(ROUNDS)]
    rows = []
    for layer in LAYERS:
        rows.append(Row(f"importing {layer}, CPU", "ms", [each[layer][0] for each in rounds]))
        rows.append(Row(f"importing {layer}, memory", "MiB", [each[layer][1] for each in rounds]))
    return rows


def _measure_once() -> dict[str, tuple[float, float]]:
    told = subprocess.run([sys.executable, "-m", __name__], check=True, stdout=subprocess.PIPE).stdout
    costs: dict[str, tuple[float, float]] = json.loads(told)
    return costs


def main() -> None:
    """Load layer after layer, and tell what each has cost."""
    costs: dict[str, tuple[float, float]] = {}
    for layer in LAYERS:
        names = _list_modules(layer)
        began, before = time.process_time(), _read_resident_bytes()
        for name in names:
            import_module(name)
        costs[layer] = (
            (time.process_time() - began) * 1000,
            (_read_resident_bytes() - before) / MIB,
        )
    sys.stdout.write(json.dumps(costs))


def _list_modules(layer: str) -> list[str]:
    """By their files alone: nothing is loaded yet."""
    root = Path(__file__).parents[2] / "nodeagent"
    names = []
    for file in sorted((root / layer).rglob("*.py")):
        parts = file.relative_to(root.parent).with_suffix("").parts
        name = ".".join(part for part in parts if part != "__init__")
        if not name.startswith(LEFT_OUT) and not name.endswith("__main__"):
            names.append(name)
    return names


def _read_resident_bytes() -> int:
    return int(Path("/proc/self/statm").read_text().split()[1]) * PAGE_BYTES


if __name__ == "__main__":
    main()
