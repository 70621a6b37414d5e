"""Chooses the node's configuration among several named files, so that one directory serves many kinds of nodes.

Owns the order: the node's label, then the configured default, then the only file or the file `default`.
Refuses to leave a node without devices for a slip in a label: the configuration in force stays, with the reason.
"""

from collections.abc import Iterable

from msgspec import Struct

LABEL = "nvidia.com/device-plugin.config"
_FALLBACK = "default"


class NamedConfiguration(Struct, frozen=True):
    """The name to use, or the reason for which the present configuration stays."""

    name: str = ""
    problem: str = ""


def choose_configuration(entries: Iterable[str], label: str, default: str | None) -> NamedConfiguration:
    """The configuration named by the label, or else the default.

    Args:
        entries: names of the files in the directory of configurations.
        label: the value of the node's label; empty without a label.
        default: the configured default, if any.
    """
    # a mounted ConfigMap keeps its data behind names that begin with two dots
    names = sorted(entry for entry in entries if not entry.startswith(".."))
    known = ", ".join(names) or "none"
    for wanted, origin in ((label, f"the node label {LABEL}"), (default or "", "device_plugin.default_config")):
        if wanted in names:
            return NamedConfiguration(name=wanted)
        if wanted:
            problem = f"{origin} asks for {wanted!r}, there are {known}: the configuration in force stays"
            return NamedConfiguration(problem=problem)
    if _FALLBACK in names:
        return NamedConfiguration(name=_FALLBACK)
    if len(names) == 1:
        return NamedConfiguration(name=names[0])
    problem = f"no label {LABEL} and no default chooses among {known}: the configuration in force stays"
    return NamedConfiguration(problem=problem)
