"""Devices of other kinds than NVIDIA's GPUs on the page; pure. Empty without a configured class."""

from nodeagent.components.web.api.records import DeviceClassRecord, DeviceRecord, StateRecord
from nodeagent.components.web.page.markup import esc, mark, prose, section, table
from nodeagent.model.devices import Standing

_STYLES = {Standing.HEALTHY: "ok", Standing.UNHEALTHY: "bad", Standing.GONE: "bad"}


def render_devices(state: StateRecord) -> str:
    """A row for each device, and the problems of each class."""
    if not state.devices:
        return ""
    rows = [_row(each, record) for each in state.devices for record in each.devices]
    notes = "".join(f"<p>{prose(f'{each.resource}: {one}')}</p>" for each in state.devices for one in each.problems)
    empty = [each.resource for each in state.devices if not each.devices]
    notes += f"<p>{prose('No device of ' + ', '.join(empty) + '.')}</p>" if empty else ""
    heads = ("Resource", "Device", "Standing", "Held", "Held by", "NUMA node")
    body = table("Devices of other kinds", heads, rows) if rows else ""
    return section("devices", "Devices", f'<div class="card">{body}{notes}</div>')


def _row(each: DeviceClassRecord, record: DeviceRecord) -> tuple[str, ...]:
    device = record.device
    reason = f"<br>{prose(device.reason)}" if device.reason else ""
    return (
        f"<code>{esc(each.resource)}</code>",
        f"<code>{esc(device.name)}</code>",
        mark(_STYLES[device.standing], str(device.standing)) + reason,
        f"{record.shares_held} of {each.replicas}",
        "<br>".join(map(esc, record.holders)) or "–",
        "–" if device.numa_node is None else str(device.numa_node),
    )
