"""The least change for a runtime with a directory read in the order of the names: one file of the agent's there.

Later files can overrule it; then nothing is written, and the overruling file is named.
"""

from collections.abc import Callable, Mapping
from pathlib import PurePosixPath
from typing import Any, Final

from nodeagent.components.runtime.plan import (
    HEADER,
    RuntimePlan,
    apply_to_tree,
    join_changes,
    list_changes,
    plan_move,
)
from nodeagent.components.runtime.toml_edit import KeyPath, get, parse_toml, set_keys
from nodeagent.model.runtime import FORMER_NAME, ConfigTree

_NAMED_DEPTH: Final = 4
"""The depth of a runtime's name; deeper keys are set with their runtime."""


def plan_drop_in(
    tree: ConfigTree, path: str, list_missing: Callable[[ConfigTree], Mapping[KeyPath, Any]], *, cdi_enabled: bool
) -> RuntimePlan:
    """Set the missing keys in the agent's file at `path`; `list_missing` finds keys with missing or wrong values.

    Raises:
        ConfigUnparsable: a file is no TOML.
    """
    changes = plan_move(tree, str(PurePosixPath(path).with_stem(FORMER_NAME)), path)
    moved = arrange_directory(apply_to_tree(tree, changes))
    if keys := list_missing(moved):
        own = next((file.content for file in moved.files if file.path == path), None)
        changes = join_changes(changes, list_changes(moved, [(path, set_keys(path, own or HEADER, keys))]))
    after = arrange_directory(apply_to_tree(tree, changes))
    if left := list_missing(after):
        names = tuple(dict.fromkeys(key[:_NAMED_DEPTH] for key in left))
        return RuntimePlan(cdi_enabled=cdi_enabled, problem=_describe_overruled(after, path, names))
    return RuntimePlan(cdi_enabled=cdi_enabled, changes=changes)


def arrange_directory(tree: ConfigTree) -> ConfigTree:
    """Changed files in the order of reading: the main file, then the others by name."""
    main, *others = tree.files
    others.sort(key=lambda file: PurePosixPath(file.path).parts)
    return ConfigTree(files=(main, *others), problems=tree.problems)


def _describe_overruled(tree: ConfigTree, own: str, keys: tuple[KeyPath, ...]) -> str:
    paths = [file.path for file in tree.files]
    setters = [
        file.path
        for file in tree.files[paths.index(own) + 1 :]
        if any(get(parse_toml(file.path, file.content), key) is not None for key in keys)
    ]
    names = ", ".join(".".join(key) for key in keys)
    return f"another file sets {names} after ours: take it out of {setters[-1] if setters else 'it'}"
