"""Whether a document is a valid CDI specification, by the rules that container runtimes apply.

Owns the format's field table: names, types, required fields, and the version that introduced each.
Refuses unknown fields, as the runtimes do: an unknown field makes the whole file invalid.
"""

import re
from collections.abc import Callable, Iterator, Mapping
from itertools import islice
from typing import Any, Final, TypeAlias

from nodeagent.model.values import Value

VERSIONS: Final = (
    *((0, minor, 0) for minor in range(1, 9)),
    (1, 0, 0),
    (1, 1, 0),
)
_VENDOR: Final = re.compile(r"[A-Za-z]([A-Za-z0-9_.-]*[A-Za-z0-9])?")
_DEVICE: Final = re.compile(r"[A-Za-z0-9]([A-Za-z0-9_.:-]*[A-Za-z0-9])?")
_PERMISSIONS: Final = re.compile(r"[rwm]*|none")
_STAGES: Final = ("prestart", "createRuntime", "createContainer", "startContainer", "poststart", "poststop")
_PROBLEMS_LIMIT: Final = 20

Check: TypeAlias = Callable[[Any], str]
"""The fault of a value; empty for a good value."""
Version: TypeAlias = tuple[int, ...]


class _Field(Value, frozen=True):
    check: Check
    required: bool = False
    since: Version = (0, 1, 0)
    items: "Mapping[str, _Field] | None" = None
    """Fields of each object in the list; `None` for anything but a list of objects."""
    fields: "Mapping[str, _Field] | None" = None
    """Fields of the object; `None` for anything but an object of known fields."""


def find_spec_problems(document: object) -> tuple[str, ...]:
    """All reasons for a runtime to refuse the document, each with its place; the first twenty."""
    return tuple(islice(_list_problems(document), _PROBLEMS_LIMIT))


def parse_version(text: object) -> Version | None:
    """An existing version of the format; a leading `v` is tolerated."""
    if not isinstance(text, str) or not re.fullmatch(r"v?\d+\.\d+\.\d+", text, re.ASCII):
        return None
    version = tuple(int(fraction) for fraction in text.removeprefix("v").split("."))
    return version if version in VERSIONS else None


def _list_problems(document: object) -> Iterator[str]:
    if not isinstance(document, dict):
        yield "the document is no object"
        return
    version = parse_version(document.get("cdiVersion"))
    if version is None:
        yield f"cdiVersion: {document.get('cdiVersion')!r} is no version of the format"
        return
    yield from _check_object(document, _SPEC, version, "")
    kind = document.get("kind")
    if isinstance(kind, str) and "." in kind.partition("/")[2] and version < (0, 6, 0):
        yield "kind: a class with a dot needs cdiVersion 0.6.0"
    yield from _check_devices(document.get("devices"), version)


def _check_devices(devices: object, version: Version) -> Iterator[str]:
    if not isinstance(devices, list):
        return
    if not devices:
        yield "devices: there must be at least one"
    seen: set[str] = set()
    for number, device in enumerate(devices):
        name = device.get("name") if isinstance(device, dict) else None
        if not isinstance(name, str):
            continue
        if name in seen:
            yield f"devices[{number}].name: {name!r} is defined twice"
        seen.add(name)
        if name[:1].isdigit() and version < (0, 5, 0):
            yield f"devices[{number}].name: {name!r} begins with a digit, which needs cdiVersion 0.5.0"
        if not device.get("containerEdits"):
            yield f"devices[{number}].containerEdits: a device must change something"


def _check_object(value: Mapping[str, Any], fields: Mapping[str, _Field], version: Version, at: str) -> Iterator[str]:
    for name in value:
        if name not in fields:
            yield f"{at}{name!s:.60}: no such field"
    for name, field in fields.items():
        if name in value:
            yield from _check_field(value[name], field, version, f"{at}{name}")
        elif field.required:
            yield f"{at}{name}: is missing"


def _check_field(value: Any, field: _Field, version: Version, at: str) -> Iterator[str]:
    if problem := field.check(value):
        yield f"{at}: {problem}"
        return
    if version < field.since:
        yield f"{at}: needs cdiVersion {'.'.join(map(str, field.since))}"
    if field.fields is not None:
        yield from _check_object(value, field.fields, version, f"{at}.")
    if field.items is not None:
        for number, item in enumerate(value):
            if isinstance(item, dict):
                yield from _check_object(item, field.items, version, f"{at}[{number}].")
            else:
                yield f"{at}[{number}]: is no object"


def _is(kind: type, words: str) -> Check:
    # In JSON true is no number, although in Python it is one.
    return lambda value: "" if isinstance(value, kind) and not (kind is int and value is True) else f"is no {words}"


def _matching(pattern: re.Pattern[str], words: str) -> Check:
    return lambda value: "" if isinstance(value, str) and pattern.fullmatch(value) else f"{value!r:.60} is no {words}"


def _list_of(kind: type, words: str) -> Check:
    def check(value: Any) -> str:
        good = isinstance(value, list) and all(isinstance(item, kind) and item is not True for item in value)
        return "" if good else f"is no list of {words}"

    return check


def _check_kind(value: Any) -> str:
    vendor, slash, device_class = value.partition("/") if isinstance(value, str) else ("", "", "")
    good = slash and _VENDOR.fullmatch(vendor) and _VENDOR.fullmatch(device_class)
    return "" if good else f"{value!r:.60} is no vendor/class"


def _check_environment(value: Any) -> str:
    good = isinstance(value, list) and all(isinstance(item, str) and item.find("=") > 0 for item in value)
    return "" if good else "is no list of NAME=value"


def _check_texts(value: Any) -> str:
    good = isinstance(value, dict) and all(isinstance(fraction, str) for item in value.items() for fraction in item)
    return "" if good else "is no map of strings"


def _check_path(value: Any) -> str:
    return "" if isinstance(value, str) and value.startswith("/") else f"{value!r:.60} is no absolute path"


def _check_text(value: Any) -> str:
    return "" if isinstance(value, str) and value else "is no text, or empty"


def _check_stage(value: Any) -> str:
    return "" if value in _STAGES else f"{value!r:.60} is no stage of a container's life"


_OBJECT: Final = _is(dict, "object")
_LIST: Final = _is(list, "list")
_STRING: Final = _is(str, "string")
_NUMBER: Final = _is(int, "whole number")
_TRUTH: Final = _is(bool, "truth value")
_STRINGS: Final = _list_of(str, "strings")

_DEVICE_NODE: Final = {
    "path": _Field(check=_check_text, required=True),
    "hostPath": _Field(check=_STRING, since=(0, 5, 0)),
    "type": _Field(check=_matching(re.compile(r"[bcup]?"), "type of device node")),
    "major": _Field(check=_NUMBER),
    "minor": _Field(check=_NUMBER),
    "fileMode": _Field(check=_NUMBER),
    "permissions": _Field(check=_matching(_PERMISSIONS, "set of permissions")),
    "uid": _Field(check=_NUMBER),
    "gid": _Field(check=_NUMBER),
}
_NET_DEVICE: Final = {
    "hostInterfaceName": _Field(check=_check_text, required=True),
    "name": _Field(check=_check_text, required=True),
}
_HOOK: Final = {
    "hookName": _Field(check=_check_stage, required=True),
    "path": _Field(check=_check_path, required=True),
    "args": _Field(check=_STRINGS),
    "env": _Field(check=_check_environment),
    "timeout": _Field(check=_NUMBER),
}
_MOUNT: Final = {
    "hostPath": _Field(check=_check_text, required=True),
    "containerPath": _Field(check=_check_text, required=True),
    "options": _Field(check=_STRINGS),
    "type": _Field(check=_STRING, since=(0, 4, 0)),
}
_INTEL_RDT: Final = {
    "closID": _Field(check=_STRING),
    "l3CacheSchema": _Field(check=_STRING),
    "memBwSchema": _Field(check=_STRING),
    "enableCMT": _Field(check=_TRUTH),
    "enableMBM": _Field(check=_TRUTH),
    "schemata": _Field(check=_STRINGS, since=(1, 1, 0)),
    "enableMonitoring": _Field(check=_TRUTH, since=(1, 1, 0)),
}
_EDITS: Final = {
    "env": _Field(check=_check_environment),
    "deviceNodes": _Field(check=_LIST, items=_DEVICE_NODE),
    "netDevices": _Field(check=_LIST, items=_NET_DEVICE, since=(1, 1, 0)),
    "hooks": _Field(check=_LIST, items=_HOOK),
    "mounts": _Field(check=_LIST, items=_MOUNT),
    "intelRdt": _Field(check=_OBJECT, fields=_INTEL_RDT, since=(0, 7, 0)),
    "additionalGids": _Field(check=_list_of(int, "whole numbers"), since=(0, 7, 0)),
}
_DEVICE_ENTRY: Final = {
    "name": _Field(check=_matching(_DEVICE, "device name"), required=True),
    "annotations": _Field(check=_check_texts, since=(0, 6, 0)),
    "containerEdits": _Field(check=_OBJECT, required=True, fields=_EDITS),
}
_SPEC: Final = {
    "cdiVersion": _Field(check=_STRING, required=True),
    "kind": _Field(check=_check_kind, required=True),
    "annotations": _Field(check=_check_texts, since=(0, 6, 0)),
    "devices": _Field(check=_LIST, required=True, items=_DEVICE_ENTRY),
    "containerEdits": _Field(check=_OBJECT, fields=_EDITS),
}
