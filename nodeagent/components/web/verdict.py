"""The node in one sentence, and whether it is ready; pure."""

from collections.abc import Sequence

from nodeagent.components.web.records import ComponentRecord, ConditionRecord, GateRecord, NodeVerdict
from nodeagent.model.gpu import Inventory


def decide_ready(gates: Sequence[GateRecord], components: Sequence[ComponentRecord]) -> bool:
    """Ready means: the gates of all vital components are open, and none of those was given up."""
    return all(gate.open for gate in gates if gate.vital) and not any(
        component.vital and component.phase in {"failed", "stopping", "stopped"} for component in components
    )


def decide_verdict(
    *, ready: bool, conditions: Sequence[ConditionRecord], inventory: Inventory | None, gates: Sequence[GateRecord]
) -> tuple[NodeVerdict, str]:
    """One word and one sentence: what a person needs first."""
    errors = [condition for condition in conditions if condition.severity == "error"]
    warnings = [condition for condition in conditions if condition.severity == "warning"]
    if errors:
        return "broken", _tell(errors, len(warnings))
    if not ready:
        if warnings:
            return "starting", _tell(warnings, 0)
        waiting = ", ".join(gate.name for gate in gates if gate.vital and not gate.open)
        return "starting", f"starting: waiting for {waiting or 'its components'}"
    if warnings:
        return "attention", _tell(warnings, 0)
    return "ok", f"all is well: {count_gpus(inventory)}"


def _tell(conditions: Sequence[ConditionRecord], also: int) -> str:
    first = conditions[0]
    sentence = f"{first.title}: {first.detail}" if first.detail else first.title
    others = len(conditions) - 1 + also
    return f"{sentence} (and {others} more)" if others else sentence


def count_gpus(inventory: Inventory | None) -> str:
    """`8 GPUs`, `1 GPU, 7 MIG devices`, `no GPU`."""
    if inventory is None or not inventory.gpus:
        return "no GPU"
    number = len(inventory.gpus)
    text = f"{number} GPU" if number == 1 else f"{number} GPUs"
    parts = sum(len(gpu.mig_devices) for gpu in inventory.gpus)
    if parts:
        text += f", {parts} MIG device" if parts == 1 else f", {parts} MIG devices"
    lost = sum(1 for gpu in inventory.gpus if gpu.lost)
    return f"{text}, {lost} lost" if lost else text
