"""The node's verdict in a sentence, and whether the node is ready; pure."""

from collections.abc import Sequence

from nodeagent.components.web.api.records import ComponentRecord, ConditionRecord, GateRecord, GpusRecord, NodeVerdict
from nodeagent.model.conditions.driver import BLINDING_CODES
from nodeagent.model.devices import DeviceTable
from nodeagent.model.gpu import Inventory
from nodeagent.model.plugin import OfferSummary, PluginState
from nodeagent.model.wording import render_age


def decide_ready(gates: Sequence[GateRecord], components: Sequence[ComponentRecord]) -> bool:
    """Ready means: the gates of all vital components are open, and no vital component was given up."""
    return all(gate.open for gate in gates if gate.vital) and not any(
        component.vital and component.phase in {"failed", "stopping", "stopped"} for component in components
    )


def decide_verdict(
    *,
    ready: bool,
    conditions: Sequence[ConditionRecord],
    inventory: Inventory | None,
    plugin: PluginState | None,
    gates: Sequence[GateRecord],
    gpus: GpusRecord | None,
    devices: DeviceTable | None = None,
) -> tuple[NodeVerdict, str]:
    """The verdict in a word and a sentence: the first news for people.

    "ok" only where pods can get every device, present, past and expected, unless a person wants otherwise, and
    only while readings are up to date.
    """
    account = plugin.account if plugin is not None else None
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
    if doubt := _find_doubt(account, gpus, conditions):
        return "attention", doubt
    return "ok", _praise(inventory, account, devices)


def _find_doubt(account: OfferSummary | None, gpus: GpusRecord | None, conditions: Sequence[ConditionRecord]) -> str:
    """A problem before its condition is old enough to be shown, or without a condition."""
    if account is not None and account.troubled:
        return account.describe()
    ages = [one.sample_age_seconds or 0.0 for one in (gpus.gpus if gpus is not None else ()) if one.sample_is_old]
    if not ages:
        return ""
    blinding = [condition for condition in conditions if condition.code in BLINDING_CODES]
    return _tell(blinding, 0) if blinding else f"GPU readings are {render_age(max(ages))} old"


def _praise(inventory: Inventory | None, account: OfferSummary | None, devices: DeviceTable | None) -> str:
    if devices is not None and (inventory is None or not inventory.gpus):
        count = sum(len(each.devices) for each in devices.classes)
        return f"all is well: {count} {'device' if count == 1 else 'devices'} of the configured classes, and no GPU"
    if account is None:
        return f"{count_gpus(inventory)}, not offered to pods: `device_plugin.enabled` is false"
    left_out = {
        "excluded by configuration": account.gpus_excluded,
        "behind another door": account.gpus_elsewhere,
        "kept for another door until nobody has it": account.gpus_draining,
        "cordoned": account.gpus_cordoned,
    }
    if any(left_out.values()):
        return f"{account.headline}: {', '.join(f'{count} {how}' for how, count in left_out.items() if count)}"
    return f"all is well: {count_gpus(inventory)}"


def _tell(conditions: Sequence[ConditionRecord], also: int) -> str:
    first = conditions[0]
    sentence = f"{first.title}: {first.detail}" if first.detail else first.title
    others = len(conditions) - 1 + also
    return f"{sentence} (and {others} more {'condition' if others == 1 else 'conditions'})" if others else sentence


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
