"""The node's devices as seen by schedulers, on the page; pure. Empty where no claims are served."""

from nodeagent.components.web.api.records import StateRecord
from nodeagent.components.web.page.markup import esc, mark, pairs, prose, section

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
