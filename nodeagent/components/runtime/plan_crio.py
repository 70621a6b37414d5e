"""The least change to the configuration of CRI-O."""

from functools import partial
from pathlib import PurePosixPath
from typing import Any, Final

from nodeagent.components.runtime.choose import ChosenRuntime
from nodeagent.components.runtime.plan import CLASS, RuntimePlan, Wanted, find_unread
from nodeagent.components.runtime.plan_drop_in import plan_drop_in
from nodeagent.components.runtime.toml_edit import KeyPath, get, get_table, merge, parse_toml
from nodeagent.model.runtime import OWN_NAME, ConfigTree

_CRIO: Final = ("crio", "runtime")


def plan_crio(runtime: ChosenRuntime, tree: ConfigTree, wanted: Wanted) -> RuntimePlan:
    """Plan the runtime class, also as the default: CDI is always on.

    Raises:
        ConfigUnparsable: a file is no TOML.
    """
    enabled = runtime.release >= runtime.record.first_with_cdi
    if problem := find_unread(tree):
        return RuntimePlan(cdi_enabled=enabled, problem=problem)
    if wanted.cdi and not enabled:
        return RuntimePlan(
            cdi_enabled=False, problem=f"CRI-O {runtime.version} knows no CDI: upgrade it to 1.24 or later"
        )
    return plan_drop_in(tree, find_crio_drop_in(runtime), partial(_list_missing, wanted), cdi_enabled=enabled)


def find_crio_drop_in(runtime: ChosenRuntime) -> str:
    """The place of the agent's own file."""
    return str(PurePosixPath(runtime.config_file).parent / "crio.conf.d" / f"{OWN_NAME}.conf")


def _list_missing(wanted: Wanted, tree: ConfigTree) -> dict[KeyPath, Any]:
    """The keys with missing or wrong values, with the wanted values."""
    merged: dict[str, Any] = {}
    entries: dict[str, Any] = {}
    for file in tree.files:
        document = parse_toml(file.path, file.content)
        # A later file replaces a runtime's whole entry, and everything else key by key.
        entries |= get_table(document, (*_CRIO, "runtimes"))
        merged = merge(merged, document)
    default = get(merged, (*_CRIO, "default_runtime"))
    keys: dict[KeyPath, Any] = {}
    program = str(get(entries, (CLASS, "runtime_path")) or "") if CLASS in entries else None
    if wanted.lacks_class(program):
        names = (CLASS, default, "runc", "crun")
        known = (entries.get(name) for name in names if isinstance(name, str))
        base: dict[str, Any] = next((each for each in known if isinstance(each, dict)), {})
        entry = {**base, "runtime_path": wanted.wrapper, "runtime_type": "oci"}
        keys |= {(*_CRIO, "runtimes", CLASS, name): value for name, value in entry.items()}
    if wanted.default and default != CLASS:
        keys[*_CRIO, "default_runtime"] = CLASS
    return keys
