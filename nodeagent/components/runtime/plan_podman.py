"""The least change to the configuration of Podman, and of whatever else reads `containers.conf`."""

from pathlib import PurePosixPath
from typing import Any, Final

from nodeagent.components.runtime.choose import ChosenRuntime
from nodeagent.components.runtime.plan import (
    CLASS,
    HEADER,
    OWN_NAME,
    RuntimePlan,
    Wanted,
    apply_to_directory,
    describe_overridden,
    find_unread,
    list_changes,
)
from nodeagent.components.runtime.toml_edit import KeyPath, get, merge, parse_toml, set_keys
from nodeagent.model.runtime import ConfigTree

_PROGRAMS: Final = ("engine", "runtimes", CLASS)
_DEFAULT: Final = ("engine", "runtime")


def plan_podman(runtime: ChosenRuntime, tree: ConfigTree, wanted: Wanted) -> RuntimePlan:
    """CDI is always on; only the runtime class, and its being the default, may be missing.

    Raises:
        ConfigUnparsable: a file is no TOML.
    """
    if problem := find_unread(tree):
        return RuntimePlan(cdi_enabled=True, problem=problem)
    keys = _list_missing(tree, wanted)
    if not keys:
        return RuntimePlan(cdi_enabled=True)
    path = str(PurePosixPath(f"{runtime.config_file}.d") / f"{OWN_NAME}.conf")
    own = next((file.content for file in tree.files if file.path == path), None)
    changes = list_changes(tree, [(path, set_keys(path, own or HEADER, keys))])
    after = apply_to_directory(tree, changes)
    if left := _list_missing(after, wanted):
        return RuntimePlan(cdi_enabled=True, problem=describe_overridden(after, path, left))
    return RuntimePlan(cdi_enabled=True, changes=changes)


def _list_missing(tree: ConfigTree, wanted: Wanted) -> dict[KeyPath, Any]:
    """The keys that are not as wanted, with the values they should have."""
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
    """What the class starts now: the first of several places that is there, which only the node knows."""
    return str(told[0]) if isinstance(told, list) and told else None
