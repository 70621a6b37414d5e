"""The answers and the table of severities in docs/signals.md, made of what the agent writes in each case."""

import re
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Final

from msgspec.structs import replace

from nodeagent.cli.answers.table import UNCUT, Layout, lay_out
from nodeagent.cli.node.allocations import tabulate_receipts
from nodeagent.components.health.evidence.xids import CATALOGUE
from nodeagent.components.signals.faults import Fault, Faults
from nodeagent.components.signals.node_conditions import decide_node_condition
from nodeagent.components.signals.nvsentinel import choose_action
from nodeagent.config.sections.repairers import LeastSeverity, NodeConditionSettings, Polarity
from nodeagent.model.allocation import PodIdentity
from nodeagent.model.cluster import GPU_FAULT_CONDITION
from nodeagent.model.events import GpuFaultReported
from nodeagent.model.health import ReturnRule
from nodeagent.model.ids import GpuUuid, PciAddress
from nodeagent.model.repairers import NvsentinelAction
from nodeagent.rules.receipts import HeldGpu, Receipt, SeenFault, find_verdict, see_fault
from nodeagent.rules.signals import XID_REASON, Severity, render_fault

PAGE: Final = Path(__file__).parents[2] / "docs" / "signals.md"
_BLOCK: Final = re.compile(r"(<!-- made: (\w+) -->\n).*?(<!-- end -->)", re.DOTALL)
_POD: Final = PodIdentity(namespace="n", name="p", uid="u")
_REPORTED: Final = GpuFaultReported(
    number=79, name="x", address=PciAddress("0000:13:00.0"), devices=(), gpu=GpuUuid("GPU-0"), index=0
)


def _name_gpu(index: int) -> GpuUuid:
    return GpuUuid(f"GPU-{index:08x}-0000-0000-0000-000000000000")


_TRAIN: Final = PodIdentity(namespace="ml", name="train-0", uid="u")
_NOW: Final = 1_000_000.0
_FELL_OFF: Final = replace(_REPORTED, name=CATALOGUE[79].name, gpu=_name_gpu(3), index=3)
_MISUSED: Final = replace(_REPORTED, number=31, name=CATALOGUE[31].name, gpu=_name_gpu(0))


def _make_receipt(pod: str, index: int, fault: SeenFault, *, ended_ago: float, held_for: float) -> Receipt:
    uuid = _name_gpu(index)
    return Receipt(
        number=1,
        resource="nvidia.com/gpu",
        devices=(uuid,),
        namespace=_TRAIN.namespace,
        pod=pod,
        container="main",
        since_seconds=_NOW - ended_ago - held_for,
        until_seconds=_NOW - ended_ago,
        state="given back",
        source="journal",
        pod_uid="u",
        gpus=(HeldGpu(uuid=uuid, index=index),),
        verdict=find_verdict([fault]),
        faults=(fault,),
    )


_RECEIPTS: Final = (
    _make_receipt("train-0", 3, see_fault(_FELL_OFF, Severity.CRITICAL, _NOW - 374), ended_ago=362, held_for=8_040),
    _make_receipt(
        "debug", 0, replace(see_fault(_MISUSED, Severity.USER, _NOW - 7_740), count=3), ended_ago=7_740, held_for=241
    ),
)
_POD_CONDITION: Final = {Severity.CRITICAL: "`nodeagent.io/GPUFault` is `True`"}
_STANDING: Final = (Severity.CRITICAL, Severity.WARN)
"""The severities of faults that a GPU goes on to have; a fault of a program is over with the program."""


def render_signals() -> str:
    """`docs/signals.md` with its answers and its table of severities made anew."""
    made = {"answers": render_answers, "severities": render_table}
    return _BLOCK.sub(lambda found: found[1] + made[found[2]]() + found[3], PAGE.read_text(encoding="utf-8"))


def render_answers() -> str:
    """The commands that tell whose fault the end of a pod was, each with its output for a GPU that fell off the bus."""
    note = render_fault(_FELL_OFF, Severity.CRITICAL, _TRAIN, "node-1").note
    event = ("6m2s", "Warning", XID_REASON, f"pod/{_TRAIN.name}", note)
    events = render_table_of_kubectl(("LAST SEEN", "TYPE", "REASON", "OBJECT", "MESSAGE"), event)
    history = lay_out(
        tabulate_receipts(_RECEIPTS, {_name_gpu(index): str(index) for index in (0, 3)}, now_seconds=_NOW),
        Layout(UNCUT),
    )
    chosen = f'{{.status.conditions[?(@.type=="{GPU_FAULT_CONDITION}")].message}}'
    answers = (
        (
            "1. The events, for an hour after the fault:",
            f"kubectl get events -n ml --field-selector involvedObject.name={_TRAIN.name},reason={XID_REASON}",
            events,
        ),
        (
            "2. The pod's condition, with [`signals.pod_condition`](#a-job-that-does-not-count-a-gpus-failure):",
            f"kubectl get pod -n ml {_TRAIN.name} -o jsonpath='{chosen}'",
            [note],
        ),
        (
            "3. For the operator, on the node, for a month: the [receipts](#after-the-pod-receipts) of its pods:",
            "nodeagent allocations --history",
            history,
        ),
    )
    return "\n".join(
        f"{title}\n\n```sh\n{command}\n```\n\n```text\n{chr(10).join(lines)}\n```\n"
        for title, command, lines in answers
    )


def render_table_of_kubectl(*rows: Sequence[str]) -> list[str]:
    """A table with three spaces between columns, as kubectl prints tables."""
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    return ["   ".join(f"{cell:<{width}}" for cell, width in zip(row, widths, strict=True)).rstrip() for row in rows]


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
