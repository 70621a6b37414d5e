"""The bodies of `/livez` and `/readyz`, in lines for people and probes; pure."""

from nodeagent.components.web.api.records import ConditionRecord, StateRecord
from nodeagent.components.web.page.groups import group_conditions


def render_readyz(state: StateRecord) -> str:
    """A line per gate, troubled component and condition, then the node in a sentence; last whether it is ready.

    A gate is shown as a milestone passed: a passed gate says nothing about the present.
    """
    lines = [
        f"[{'+' if gate.open else '-'}] gate {gate.name} {'passed' if gate.open else 'not passed yet'}"
        for gate in state.gates
    ]
    lines += [
        f"[{'-' if component.vital else '!'}] component {component.name} {component.phase}"
        + (f": {one_line(component.last_error)}" if component.last_error else "")
        for component in state.components
        if component.phase in {"failed", "backing_off", "degraded"}
    ]
    for group in group_conditions(state.conditions):
        named, rest = group.split()
        lines += [render_condition(condition) for condition in named]
        one = group.first
        lines += [f"[!] {one.severity} {one.code} {len(rest)} more, all in /api/v1/conditions"] if rest else []
    lines.append(f"[i] {one_line(state.sentence)}")
    lines.append("ready" if state.ready else "not ready")
    return "\n".join(lines) + "\n"


def render_condition(condition: ConditionRecord) -> str:
    """Code, title, detail and remedy, in a line."""
    detail = f": {one_line(condition.detail)}" if condition.detail else ""
    key = f" [{one_line(condition.key)}]" if condition.key else ""
    return f"[!] {condition.severity} {condition.code}{key} {condition.title}{detail}; {condition.remedy}"


def one_line(text: str) -> str:
    """Text from hardware or configuration as a single printable line, so that no text can forge another line."""
    return "".join(character if character.isprintable() else " " for character in text)
