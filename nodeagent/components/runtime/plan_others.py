"""The least change to the configuration of CRI-O and of Docker."""

import json
import re
from pathlib import PurePosixPath
from typing import Any, Final

from nodeagent.components.runtime.choose import ChosenRuntime, parse_version
from nodeagent.components.runtime.plan import CLASS, HEADER, OWN_NAME, RuntimePlan, Wanted, list_changes
from nodeagent.components.runtime.toml_edit import ConfigUnparsable, get, get_table, merge, parse_toml, set_keys
from nodeagent.model.runtime import ConfigTree

_CRIO: Final = ("crio", "runtime")
_CRIO_CDI: Final = (1, 24)
_DOCKER_CDI_KNOWN: Final = (25, 0)
_DOCKER_CDI_ON: Final = (28, 2)
_INDENT: Final = re.compile(r"\n([ \t]+)\S")
_DEFAULT_INDENT: Final = "    "


def plan_crio(runtime: ChosenRuntime, tree: ConfigTree, wanted: Wanted) -> RuntimePlan:
    """CDI is always on; only the runtime class may be missing.

    Raises:
        ConfigUnparsable: a file is no TOML.
    """
    release = parse_version(runtime.version)
    enabled = release >= _CRIO_CDI
    if problem := _find_problem(tree):
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


def plan_docker(runtime: ChosenRuntime, tree: ConfigTree, wanted: Wanted) -> RuntimePlan:
    """Two keys of one JSON object.

    Raises:
        ConfigUnparsable: the file is no JSON object.
    """
    release = parse_version(runtime.version)
    file = tree.files[0]
    document = parse_daemon_json(file.path, file.content)
    features = document.get("features", {})
    told = features.get("cdi") if isinstance(features, dict) else None
    enabled = release >= _DOCKER_CDI_KNOWN and (told if isinstance(told, bool) else release >= _DOCKER_CDI_ON)
    if problem := _find_problem(tree):
        return RuntimePlan(cdi_enabled=enabled, problem=problem)
    if wanted.cdi and release < _DOCKER_CDI_KNOWN:
        problem = (
            f"Docker {runtime.version} knows no CDI: upgrade it to 25 or later, or set `runtime.legacy_class: true`"
        )
        return RuntimePlan(cdi_enabled=False, problem=problem)
    edited = dict(document)
    if wanted.cdi and not enabled:
        edited["features"] = {**_require_object(file.path, document, "features"), "cdi": True}
    runtimes = _require_object(file.path, document, "runtimes")
    if wanted.wrapper and CLASS not in runtimes:
        edited["runtimes"] = {**runtimes, CLASS: {"path": wanted.wrapper, "args": []}}
    if edited == document:
        return RuntimePlan(cdi_enabled=enabled)
    content = render_daemon_json(edited, file.content or b"")
    return RuntimePlan(cdi_enabled=enabled, changes=list_changes(tree, [(file.path, content)]))


def parse_daemon_json(path: str, content: bytes | None) -> dict[str, Any]:
    """Docker's settings; an absent or empty file has none.

    Raises:
        ConfigUnparsable: it is no JSON object; says in which line and column.
    """
    try:
        document = json.loads(content) if content and content.strip() else {}
    except json.JSONDecodeError as error:
        place = f"line {error.lineno}, column {error.colno}"
        raise ConfigUnparsable(path, f"it is no JSON, {error.msg.lower()} at {place}") from error
    except (ValueError, RecursionError) as error:
        raise ConfigUnparsable(path, f"it is no JSON, {error}") from error
    if not isinstance(document, dict):
        raise ConfigUnparsable(path, "it is no JSON object")
    return document


def render_daemon_json(document: dict[str, Any], like: bytes) -> bytes:
    """The settings in their own order, indented as the file was."""
    found = _INDENT.search(like.decode("utf-8", "replace"))
    end = b"" if like and not like.endswith(b"\n") else b"\n"
    return json.dumps(document, indent=found[1] if found else _DEFAULT_INDENT, ensure_ascii=False).encode() + end


def _require_object(path: str, document: dict[str, Any], name: str) -> dict[str, Any]:
    value = document.get(name, {})
    if not isinstance(value, dict):
        raise ConfigUnparsable(path, f"`{name}` is no object")
    return value


def _find_problem(tree: ConfigTree) -> str:
    return next((problem for problem in (*tree.problems, *(file.problem for file in tree.files)) if problem), "")
