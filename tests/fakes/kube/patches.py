"""What patches make of an object, and which manager owns which of its labels and annotations."""

import json
from collections.abc import Mapping
from typing import Final

from tests.fakes.kube.kinds import Json
from tests.fakes.kube.refusals import field_conflict

APPLY: Final = "application/apply-patch+yaml"
STRATEGIC: Final = "application/strategic-merge-patch+json"
_OWNED: Final = ("labels", "annotations")
_LABELS: Final = ".metadata.labels."
_MERGED_BY: Final = {"conditions": "type"}
"""Lists of nodes, pods and DaemonSets that a strategic merge goes through, each with the key of its items."""


def merge(before: object, patch: object, *, is_strategic: bool = False) -> object:
    """The object with what a patch names: null takes a key off, a list replaces a list."""
    if not isinstance(patch, Mapping):
        return patch
    merged = dict(before) if isinstance(before, Mapping) else {}
    for key, value in patch.items():
        if value is None:
            merged.pop(key, None)
        elif is_strategic and key in _MERGED_BY:
            merged[key] = _merge_items(merged.get(key) or [], value, _MERGED_BY[key])
        else:
            merged[key] = merge(merged.get(key), value, is_strategic=is_strategic)
    return merged


def _merge_items(before: list[Json], patches: list[Json], key: str) -> list[Json]:
    found = {item[key]: item for item in before}
    for patch in patches:
        name = patch[key]
        if patch.get("$patch") == "delete":
            found.pop(name, None)
        else:
            found[name] = found.get(name, {}) | patch
    return list(found.values())


def apply(before: Json, patch: Json, manager: str) -> Json:
    """The object with the labels of a manager as it names them; all other fields that it names are simply its.

    Raises:
        Refused: another manager has given one of the labels another value.
    """
    owned, wanted = list_owned(before, manager), patch.get("metadata", {}).get("labels") or {}
    labels: dict[str, str] = dict(before["metadata"].get("labels") or {})
    others = {key: _find_owner(before, key, manager, is_owned=key in owned) for key in labels}
    taken = [
        (owner, _LABELS + key)
        for key, owner in sorted(others.items())
        if owner and labels[key] != wanted.get(key, labels[key])
    ]
    if taken:
        raise field_conflict(taken)
    for key in owned - wanted.keys():
        if not others.get(key):
            labels.pop(key, None)
    rest = {key: value for key, value in patch.items() if key not in {"metadata", "apiVersion", "kind"}}
    owners = {
        key: value for key, value in patch["metadata"].items() if key not in {"labels", "name", "namespace", "uid"}
    }
    metadata = before["metadata"] | owners | {"labels": labels | wanted}
    entries = [each for each in metadata.get("managedFields") or [] if not _is_applied_by(each, manager)]
    if wanted:
        fields: Json = {"f:metadata": {"f:labels": {f"f:{key}": {} for key in wanted}}}
        entries.append({"manager": manager, "operation": "Apply", "fieldsV1": fields})
    return before | rest | {"metadata": metadata | {"managedFields": entries}}


def own_changes(before: Json, after: Json, manager: str) -> None:
    """Labels and annotations that a plain write has changed are taken from their managers, and are the writer's."""
    changed, ours = dict[str, set[str]](), Json()
    for kind in _OWNED:
        old, new = (each["metadata"].get(kind) or {} for each in (before, after))
        changed[f"f:{kind}"] = {key for key in old.keys() | new.keys() if old.get(key) != new.get(key)}
        written: Json = {f"f:{key}": {} for key in changed[f"f:{kind}"] if key in new}
        if written:
            ours[f"f:{kind}"] = written
    if not any(changed.values()):
        return
    metadata = after["metadata"]
    kept: list[Json] = []
    for entry in metadata.get("managedFields") or []:
        left = Json()
        if "f:metadata" not in entry["fieldsV1"]:
            kept.append(entry)
            continue
        for kind, fields in entry["fieldsV1"]["f:metadata"].items():
            rest: Json = {key: {} for key in fields if key.removeprefix("f:") not in changed[kind]}
            if rest:
                left[kind] = rest
        if left:
            kept.append(entry | {"fieldsV1": {"f:metadata": left}})
    if ours:
        kept.append({"manager": manager, "operation": "Update", "fieldsV1": {"f:metadata": ours}})
    metadata["managedFields"] = kept


def own_conditions(before: Json, after: Json, manager: str) -> None:
    """The status of a condition that a write has changed is the writer's; a condition that is gone is nobody's."""
    old, new = (_list_statuses(each) for each in (before, after))
    changed = {kind for kind in old.keys() | new.keys() if old.get(kind) != new.get(kind)}
    if not changed:
        return
    metadata = after["metadata"]
    kept: list[Json] = []
    ours: Json = {kind: {"f:status": {}} for kind in changed if kind in new}
    for entry in metadata.get("managedFields") or []:
        conditions = entry["fieldsV1"].get("f:status", {}).get("f:conditions")
        if conditions is None:
            kept.append(entry)
            continue
        left = {kind: fields for kind, fields in conditions.items() if kind not in changed}
        if entry["manager"] == manager:
            ours |= left
        elif left:
            kept.append(entry | {"fieldsV1": {"f:status": {"f:conditions": left}}})
    if ours:
        fields: Json = {"f:status": {"f:conditions": ours}}
        kept.append({"manager": manager, "operation": "Update", "subresource": "status", "fieldsV1": fields})
    metadata["managedFields"] = kept


def _list_statuses(document: Json) -> dict[str, object]:
    """The status of each condition, by the condition's key in the records of managers."""
    conditions = (document.get("status") or {}).get("conditions") or []
    return {f"k:{json.dumps({'type': each['type']}, separators=(',', ':'))}": each.get("status") for each in conditions}


def list_owned(document: Json, manager: str) -> set[str]:
    """The labels that a manager has applied."""
    entries = [each for each in document["metadata"].get("managedFields") or [] if _is_applied_by(each, manager)]
    return {key for entry in entries for key in _list_labels(entry)}


def _find_owner(document: Json, key: str, manager: str, *, is_owned: bool) -> str:
    """Somebody else who has written the label, or nobody; what nobody has written was there before the first apply."""
    for entry in document["metadata"].get("managedFields") or []:
        if key in _list_labels(entry) and not _is_applied_by(entry, manager):
            return str(entry["manager"])
    return "" if is_owned else "before-first-apply"


def _is_applied_by(entry: Json, manager: str) -> bool:
    return (entry["manager"], entry["operation"]) == (manager, "Apply")


def _list_labels(entry: Json) -> set[str]:
    return {key.removeprefix("f:") for key in entry["fieldsV1"].get("f:metadata", {}).get("f:labels", {})}
