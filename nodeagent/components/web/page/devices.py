"""Devices of the configured classes, and the node's devices as seen by schedulers, on the page; pure.

Empty without a configured class, and where no claims are served.
"""

from nodeagent.components.web.api.records import DeviceClassRecord, DeviceRecord, StateRecord
from nodeagent.components.web.page.markup import esc, mark, pairs, prose, section, table
from nodeagent.model.devices import Standing

NAMED_MAX = 12
"""How many devices are named; the command lists all."""


def render_slices(state: StateRecord) -> str:
    """The number of devices, and tainted devices."""
    slices = state.slices
    if slices is None:
        return ""
    standing = mark("bad", "not written") + f" {prose(slices.problem)}" if slices.problem else mark("ok", "written")
    named = ", ".join(f"<code>{esc(name)}</code>" for name in slices.tainted[:NAMED_MAX])
    more = len(slices.tainted) - NAMED_MAX
    facts = [
        ("To schedulers", standing),
        ("Devices", esc(slices.describe())),
        ("Pods are kept from", (named or "none") + (f" and {more} more" if more > 0 else "")),
        ("Each device", "<code>nodeagent claims slices</code>"),
    ]
    return section("slices", "Slices", f'<div class="card">{pairs(facts)}</div>')


_STYLES = {Standing.HEALTHY: "ok", Standing.UNHEALTHY: "bad", Standing.GONE: "bad"}


def render_devices(state: StateRecord) -> str:
    """A row for each device, and the problems of each class."""
    if not state.devices:
        return ""
    rows = [_row(each, record) for each in state.devices for record in each.devices]
    notes = "".join(f"<p>{prose(f'{each.resource}: {one}')}</p>" for each in state.devices for one in each.notes)
    empty = [each.resource for each in state.devices if not each.devices]
    notes += f"<p>{prose('No device of ' + ', '.join(empty) + '.')}</p>" if empty else ""
    heads = ("Resource", "Device", "Standing", "Held", "Held by", "NUMA node")
    body = table("Devices of the configured classes", heads, rows) if rows else ""
    return section("devices", "Devices", f'<div class="card">{body}{notes}</div>')


def _row(each: DeviceClassRecord, record: DeviceRecord) -> tuple[str, ...]:
    device = record.device
    reason = f"<br>{prose(device.reason)}" if device.reason else ""
    return (
        f"<code>{esc(each.resource)}</code>",
        f"<code>{esc(device.name)}</code>",
        mark(_STYLES[device.standing], str(device.standing)) + reason,
        each.describe_held(record),
        "<br>".join(map(esc, record.holders)) or "–",
        "–" if device.numa_node is None else str(device.numa_node),
    )
