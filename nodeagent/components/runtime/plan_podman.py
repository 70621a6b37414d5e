"""The least change to the configuration of Podman, and of other readers of `containers.conf`."""

from functools import partial
from pathlib import PurePosixPath
from typing import Any, Final

from nodeagent.components.runtime.choose import ChosenRuntime
from nodeagent.components.runtime.plan import CLASS, RuntimePlan, Wanted, find_unread
from nodeagent.components.runtime.plan_drop_in import plan_drop_in
from nodeagent.components.runtime.toml_edit import KeyPath, get, merge, parse_toml
from nodeagent.model.runtime import OWN_NAME, ConfigTree

_PROGRAMS: Final = ("engine", "runtimes", CLASS)
_DEFAULT: Final = ("engine", "runtime")


def plan_podman(runtime: ChosenRuntime, tree: ConfigTree, wanted: Wanted) -> RuntimePlan:
    """Plan the runtime class, also as the default: CDI is always on.

    Raises:
        ConfigUnparsable: a file is no TOML.
    """
    if problem := find_unread(tree):
        return RuntimePlan(cdi_enabled=True, problem=problem)
    return plan_drop_in(tree, find_podman_drop_in(runtime), partial(_list_missing, wanted), cdi_enabled=True)


def find_podman_drop_in(runtime: ChosenRuntime) -> str:
    """The place of the agent's own file."""
    return str(PurePosixPath(f"{runtime.config_file}.d") / f"{OWN_NAME}.conf")


def _list_missing(wanted: Wanted, tree: ConfigTree) -> dict[KeyPath, Any]:
    """The keys with missing or wrong values, with the wanted values."""
    merged: dict[str, Any] = {}
    for file in tree.files:
        merged = merge(merged, parse_toml(file.path, file.content))
    keys: dict[KeyPath, Any] = {}
    if wanted.lacks_class(_find_program(get(merged, _PROGRAMS))):
        keys[_PROGRAMS] = [wanted.wrapper]
    if wanted.default and get(merged, _DEFAULT) != CLASS:
        keys[_DEFAULT] = CLASS
    return keys


def _find_program(told: object) -> str | None:
    """The first of the class's programs; Podman takes the first existing one, known to the node alone."""
    return str(told[0]) if isinstance(told, list) and told else None
