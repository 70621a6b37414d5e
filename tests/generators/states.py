"""Who says what to whom, in docs/architecture.md: each state on the bus, who says it, and who looks at it.

Who looks is read from the code: a component's shell names the class of a state as a value where it watches, asks for
the newest, or lists what it watches. Who says it stands here, because what is published is often made elsewhere.
"""

import ast
import re
from pathlib import Path
from typing import Final

from nodeagent.model.allocation import AllocationTable, ClaimTable
from nodeagent.model.claims import ClaimStanding, ReadyClaims
from nodeagent.model.cluster import (
    ClusterLink,
    ClusterNode,
    NodeRequests,
    PodConditionCounts,
    PodEventCounts,
    PodLabelTable,
    ReceiptCounts,
)
from nodeagent.model.cordons import CordonTable
from nodeagent.model.devices import DeviceReadingTable, DeviceTable
from nodeagent.model.driver import DriverState
from nodeagent.model.events import STATES
from nodeagent.model.fractions import FractionDecisions, FractionOffers
from nodeagent.model.gpu import Inventory
from nodeagent.model.health import HealthReport
from nodeagent.model.journal import ChosenAllocationModes, FractionTable
from nodeagent.model.labels import LabelState
from nodeagent.model.mig import MigState
from nodeagent.model.mps import MpsState
from nodeagent.model.offering import Offering
from nodeagent.model.plugin import PluginState
from nodeagent.model.proof import GpuProofs
from nodeagent.model.repairs import RepairState
from nodeagent.model.runtime import CdiState, RuntimeState
from nodeagent.model.slices import PublishedSlices
from nodeagent.model.telemetry import EventWatch, NodeSample
from nodeagent.model.upgrades import UpgradeState
from nodeagent.model.usage import FractionUsage
from nodeagent.model.values import Value

ROOT: Final = Path(__file__).parents[2]
COMPONENTS: Final = ROOT / "nodeagent" / "components"
_BLOCK: Final = re.compile(r"(<!-- made: states -->\n).*?(<!-- end -->)", re.DOTALL)

SAID_BY: Final[dict[type[Value], str]] = {
    DriverState: "driver",
    Inventory: "inventory",
    NodeSample: "inventory",
    EventWatch: "inventory",
    HealthReport: "health",
    RuntimeState: "runtime",
    CdiState: "cdi",
    PluginState: "deviceplugin",
    Offering: "offering",
    MigState: "mig",
    DeviceTable: "devices",
    DeviceReadingTable: "devices",
    MpsState: "mps",
    AllocationTable: "allocations",
    ChosenAllocationModes: "allocations",
    CordonTable: "allocations",
    FractionTable: "allocations",
    FractionOffers: "fractions",
    FractionDecisions: "fractions",
    FractionUsage: "usage",
    ClaimTable: "allocations",
    ReadyClaims: "allocations",
    ClaimStanding: "claims",
    PublishedSlices: "slices",
    LabelState: "labeler",
    ClusterNode: "cluster",
    NodeRequests: "cluster",
    ClusterLink: "cluster",
    PodLabelTable: "cluster",
    PodEventCounts: "signals",
    PodConditionCounts: "signals",
    ReceiptCounts: "signals",
    RepairState: "repairs",
    UpgradeState: "upgrades",
    GpuProofs: "proof",
}
_NAMES: Final = frozenset(state.__name__ for state in SAID_BY)


def fill_states(page: str) -> str:
    looks = {folder.name: list_looked_at(folder) for folder in sorted(COMPONENTS.iterdir()) if is_component(folder)}
    rows = ["| State | said by | looked at by |", "| --- | --- | --- |"]
    for state in STATES:
        name, said_by = state.__name__, SAID_BY[state]
        lookers = [part for part, seen in looks.items() if name in seen and part not in {said_by, "web"}]
        rows.append(f"| `{name}` | {said_by} | {', '.join(lookers) or 'web alone'} |")
    table = "\n".join([*rows, ""])
    return _BLOCK.sub(lambda found: found[1] + table + found[2], page)


def is_component(folder: Path) -> bool:
    """Whether this is a part, and not what Python left of one."""
    return (folder / "component.py").exists()


def list_looked_at(folder: Path) -> set[str]:
    """The states whose classes the files of a component that wait pass on as values."""
    return {
        name
        for path in (*folder.rglob("component.py"), *folder.rglob("*_task.py"))
        for name in _find_values(ast.parse(path.read_text(encoding="utf-8")))
        if name in _NAMES
    }


def publishes(folder: Path, state: str) -> bool:
    """Whether a component publishes at all, and knows this state."""
    text = "\n".join(path.read_text(encoding="utf-8") for path in folder.rglob("*.py"))
    return ".publish_state(" in text and re.search(rf"\b{state}\b", text) is not None


def _find_values(tree: ast.AST) -> set[str]:
    """Names that stand as arguments or in lists, not those that are called or that say of what type something is."""
    found: set[str] = set()
    for field, value in ast.iter_fields(tree):
        if field in {"annotation", "returns", "slice"}:
            continue
        for each in value if isinstance(value, list) else [value]:
            if isinstance(each, ast.Name) and field in {"args", "elts"}:
                found.add(each.id)
            elif isinstance(each, ast.AST):
                found |= _find_values(each)
    return found
