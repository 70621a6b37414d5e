"""The least change to the configuration of Docker."""

import json
import re
from typing import Any, Final

from nodeagent.components.runtime.choose import ChosenRuntime
from nodeagent.components.runtime.plan import CLASS, RuntimePlan, Wanted, find_unread, list_changes
from nodeagent.components.runtime.toml_edit import ConfigUnparsable
from nodeagent.model.runtime import ConfigTree

_CDI_ON: Final = (28, 2)
"""From this release on CDI is on unless it is switched off."""
_INDENT: Final = re.compile(r"\n([ \t]+)\S")
_DEFAULT_INDENT: Final = "    "


def plan_docker(runtime: ChosenRuntime, tree: ConfigTree, wanted: Wanted) -> RuntimePlan:
    """Plan a few keys in the JSON object.

    Raises:
        ConfigUnparsable: the file is no JSON object.
    """
    release, knows_cdi = runtime.release, runtime.release >= runtime.record.first_with_cdi
    file = tree.files[0]
    document = parse_daemon_json(file.path, file.content)
    features = document.get("features", {})
    told = features.get("cdi") if isinstance(features, dict) else None
    enabled = knows_cdi and (told if isinstance(told, bool) else release >= _CDI_ON)
    if problem := find_unread(tree):
        return RuntimePlan(cdi_enabled=enabled, problem=problem)
    if wanted.cdi and not knows_cdi:
        problem = (
            f"Docker {runtime.version} knows no CDI: upgrade it to 25 or later, or set `runtime.legacy_class: true`"
        )
        return RuntimePlan(cdi_enabled=False, problem=problem)
    edited = dict(document)
    if wanted.cdi and not enabled:
        edited["features"] = {**_require_object(file.path, document, "features"), "cdi": True}
    runtimes = _require_object(file.path, document, "runtimes")
    known = runtimes.get(CLASS)
    program = str(known.get("path", "")) if isinstance(known, dict) else None
    if wanted.lacks_class(program):
        edited["runtimes"] = {**runtimes, CLASS: {"path": wanted.wrapper, "args": []}}
    if wanted.default:
        edited["default-runtime"] = CLASS
    if edited == document:
        return RuntimePlan(cdi_enabled=enabled)
    content = render_daemon_json(edited, file.content or b"")
    return RuntimePlan(cdi_enabled=enabled, changes=list_changes(tree, [(file.path, content)]))


def parse_daemon_json(path: str, content: bytes | None) -> dict[str, Any]:
    """Docker's settings; an absent or empty file has none.

    Raises:
        ConfigUnparsable: the file is no JSON object; the message has line and column.
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


def is_daemon_json(written: bytes | None) -> bool:
    """Whether the content is written for Docker, whose file may have any name; no TOML begins with a brace."""
    return (written or b"").startswith(b"{")


def render_daemon_json(document: dict[str, Any], like: bytes) -> bytes:
    """The settings in the given order, indented like the former file."""
    found = _INDENT.search(like.decode("utf-8", "replace"))
    end = b"" if like and not like.endswith(b"\n") else b"\n"
    indent = found[1] if found else _DEFAULT_INDENT
    try:
        return json.dumps(document, indent=indent, ensure_ascii=False).encode() + end
    except UnicodeEncodeError:
        # Half a surrogate pair can only be written as an escape with its number.
        return json.dumps(document, indent=indent).encode() + end


def _require_object(path: str, document: dict[str, Any], name: str) -> dict[str, Any]:
    value = document.get(name, {})
    if not isinstance(value, dict):
        raise ConfigUnparsable(path, f"`{name}` is no object")
    return value
