"""What the cluster asks of this node by labels, and what is done to its start-up taint.

Owns the keys of the pause protocol and of named configurations, and the rule for the taint.
"""

from collections.abc import Collection, Mapping

from nodeagent.model.cluster import Taint
from nodeagent.model.values import Value

CONFIGURATION_LABEL = "nvidia.com/device-plugin.config"
_DEPLOY = "nvidia.com/gpu.deploy."
_PAUSED = "paused-for-"
_OUR_JOBS = (
    "container-toolkit",
    "operator-validator",
    "device-plugin",
    "gpu-feature-discovery",
    "dcgm",
    "dcgm-exporter",
    "client",
)
"""Operands whose work this agent does, and `client`, which stands for everybody with handles."""


def find_pause(labels: Mapping[str, str]) -> str:
    """The label that pauses us, as `key=value`; nothing when none does."""
    for job in _OUR_JOBS:
        value = labels.get(_DEPLOY + job, "")
        if _PAUSED in value:
            return f"{_DEPLOY}{job}={value}"
    return ""


class Choice(Value, frozen=True):
    """Which named configuration is to be in force."""

    name: str | None = None
    problem: str = ""
    """Why the present one stays instead; empty when it need not."""


def choose_configuration(label: str, default: str | None, names: Collection[str]) -> Choice:
    """The configuration that the label asks for, or else the default, the one called so, or the only one."""
    if label:
        if label in names:
            return Choice(name=label)
        known = ", ".join(sorted(names)) or "none"
        return Choice(problem=f"{CONFIGURATION_LABEL}={label}: no such configuration, there are: {known}")
    if default is not None:
        return (
            Choice(name=default) if default in names else Choice(problem=f"device_plugin.default_config: no {default}")
        )
    if "default" in names:
        return Choice(name="default")
    return Choice(name=next(iter(names)) if len(names) == 1 else None)


def parse_taint(text: str) -> Taint:
    """`key[=value]:Effect`, which the configuration has checked."""
    name, _, effect = text.rpartition(":")
    key, _, value = name.partition("=")
    return Taint(key=key, effect=effect, value=value)


def decide_taint(*, present: bool, ready: bool, was_ready: bool, put_again: bool) -> bool | None:
    """Whether the start-up taint is to be put on or taken off; `None` when it stays as it is."""
    if present and ready:
        return False
    if not present and not ready and was_ready and put_again:
        return True
    return None
