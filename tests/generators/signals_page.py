"""The table of severities in docs/signals.md, made of what the agent writes in each case."""

import re
from collections.abc import Callable
from pathlib import Path
from typing import Final

from nodeagent.components.signals.faults import Fault, Faults
from nodeagent.components.signals.node_conditions import decide_node_condition
from nodeagent.components.signals.nvsentinel import choose_action
from nodeagent.config.sections.repairers import LeastSeverity, NodeConditionSettings, Polarity
from nodeagent.model.allocation import PodIdentity
from nodeagent.model.events import GpuFaultReported
from nodeagent.model.health import ReturnRule
from nodeagent.model.ids import GpuUuid, PciAddress
from nodeagent.model.repairers import NvsentinelAction
from nodeagent.rules.signals import Severity, render_fault

PAGE: Final = Path(__file__).parents[2] / "docs" / "signals.md"
_BLOCK: Final = re.compile(r"(<!-- made: severities -->\n).*?(<!-- end -->)", re.DOTALL)
_POD: Final = PodIdentity(namespace="n", name="p", uid="u")
_REPORTED: Final = GpuFaultReported(
    number=79, name="x", address=PciAddress("0000:13:00.0"), devices=(), gpu=GpuUuid("GPU-0"), index=0
)
_POD_CONDITION: Final = {Severity.CRITICAL: "`nodeagent.io/GPUFault` is `True`"}
_STANDING: Final = (Severity.CRITICAL, Severity.WARN)
"""The severities of faults that a GPU goes on to have; a fault of a program is over with the program."""


def render_signals() -> str:
    """`docs/signals.md` with its table of severities made anew."""
    return _BLOCK.sub(lambda found: found[1] + render_table() + found[2], PAGE.read_text(encoding="utf-8"))


def render_table() -> str:
    rows = [[severity.value, *(tell(severity) for tell in _COLUMNS.values())] for severity in Severity]
    head = ["Severity", *_COLUMNS]
    return "".join(f"| {' | '.join(row)} |\n" for row in (head, ["---"] * len(head), *rows))


def _tell_event(severity: Severity) -> str:
    found = re.search(r"\[[A-Z]+\]", render_fault(_REPORTED, severity, _POD, "n").note)
    assert found is not None
    return f"`{found[0]}`"


def _tell_nvsentinel(severity: Severity) -> str:
    if severity not in _STANDING:
        return "not told"
    actions = list(dict.fromkeys(choose_action(severity, rule) for rule in ReturnRule))
    fatal = "not fatal" if actions == [NvsentinelAction.NONE] else "fatal"
    return f"{fatal}: {', '.join(f'`{each.name}`' for each in sorted(actions))}"


def _tell_condition(severity: Severity, kind: str, polarity: Polarity) -> str:
    """The status by the default severity, and by `warn` where that differs."""
    told = {least: _find_status(severity, least, kind, polarity) for least in ("critical", "warn")}
    asked = "" if told["critical"] == told["warn"] else f"; `{told['warn']}` with `severity: warn`"
    return f"`{told['critical']}`{asked}"


def _find_status(severity: Severity, least: LeastSeverity, kind: str, polarity: Polarity) -> str:
    fault = Fault(
        gpu="GPU-0",
        key="xid-79",
        index=0,
        address=_REPORTED.address,
        severity=severity,
        rule=ReturnRule.RESET,
        reason="",
        since_seconds=0.0,
    )
    configured = NodeConditionSettings(type=kind, true_means=polarity, severity=least)
    found = decide_node_condition(configured, Faults(found=(fault,) if severity in _STANDING else (), gpus=1), "")
    assert found is not None
    return found.status


_COLUMNS: Final[dict[str, Callable[[Severity], str]]] = {
    "In the event on the pod (Flyte)": _tell_event,
    "Pod condition": lambda severity: _POD_CONDITION.get(severity, "not set"),
    "NVSentinel": _tell_nvsentinel,
    "node-problem-detector's form": lambda severity: _tell_condition(severity, "GPUProblem", "faulty"),
    "EKS, Karpenter": lambda severity: _tell_condition(severity, "AcceleratedHardwareReady", "healthy"),
}
