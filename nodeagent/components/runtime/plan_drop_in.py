"""The least change for a runtime that reads a directory in the order of the names: one file of ours in it.

What is read after ours can overrule it; then nothing is written, and who does is named.
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
"""As deep as the name of a runtime lies; what is set in one is set with it."""


def plan_drop_in(
    tree: ConfigTree, path: str, list_missing: Callable[[ConfigTree], Mapping[KeyPath, Any]], *, cdi_enabled: bool
) -> RuntimePlan:
    """Have our file at this path say what is missing; `list_missing` says which keys are not as wanted.

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
    """Changed files in the order in which they will be read: the main one, then the others by their names."""
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
