"""The least change to the configuration of CRI-O."""

from pathlib import PurePosixPath
from typing import Any, Final

from nodeagent.components.runtime.choose import ChosenRuntime
from nodeagent.components.runtime.plan import CLASS, HEADER, OWN_NAME, RuntimePlan, Wanted, find_unread, list_changes
from nodeagent.components.runtime.toml_edit import get, get_table, merge, parse_toml, set_keys
from nodeagent.model.runtime import ConfigTree

_CRIO: Final = ("crio", "runtime")


def plan_crio(runtime: ChosenRuntime, tree: ConfigTree, wanted: Wanted) -> RuntimePlan:
    """CDI is always on; only the runtime class may be missing.

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
    merged: dict[str, Any] = {}
    entries: dict[str, Any] = {}
    for file in tree.files:
        document = parse_toml(file.path, file.content)
        # A later file replaces a runtime's whole entry, and everything else key by key.
        entries |= get_table(document, (*_CRIO, "runtimes"))
        merged = merge(merged, document)
    if not wanted.wrapper or CLASS in entries:
        return RuntimePlan(cdi_enabled=enabled)
    default = get(merged, (*_CRIO, "default_runtime"))
    base: dict[str, Any] = next(
        (entries[name] for name in (default, "runc", "crun") if isinstance(entries.get(name), dict)), {}
    )
    entry = {**base, "runtime_path": wanted.wrapper, "runtime_type": "oci"}
    path = str(PurePosixPath(runtime.config_file).parent / "crio.conf.d" / f"{OWN_NAME}.conf")
    content = set_keys(path, HEADER, {(*_CRIO, "runtimes", CLASS, name): value for name, value in entry.items()})
    return RuntimePlan(cdi_enabled=enabled, changes=list_changes(tree, [(path, content)]))
