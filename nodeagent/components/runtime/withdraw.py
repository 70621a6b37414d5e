"""Takes the agent's keys out of a configuration file edited by others since, and leaves the rest alone.

Owns the three-way comparison: the file before the agent, as the agent wrote it, and now. A value of the agent's goes
back to the former value; a value changed since belongs to the editor. The lines of others stay where the text allows,
and the result must be, by another parser, exactly the outcome of the comparison.

Refuses to return anything else.
"""

import difflib
from collections.abc import Iterable, Mapping
from typing import Any, Final

import tomlkit
from tomlkit.exceptions import TOMLKitError

from nodeagent.components.runtime.plan_docker import is_daemon_json, parse_daemon_json, render_daemon_json
from nodeagent.components.runtime.toml_edit import ConfigUneditable, ConfigUnparsable, KeyPath, parse_toml
from nodeagent.model.runtime import EditedFile

_ABSENT: Final = object()


def withdraw(file: EditedFile) -> bytes | None:
    """The file without the agent's keys; `None` when no setting would be left and there was no file before the agent.

    Raises:
        ConfigUnparsable: the file is not in the right format.
        ConfigUneditable: the keys cannot be taken out without touching other lines.
    """
    is_json = is_daemon_json(file.ours)
    parse = parse_daemon_json if is_json else parse_toml
    before, ours, now = (parse(file.path, content) for content in (file.before, file.ours, file.now))
    wanted = compare(before, ours, now)
    if file.before is None and not wanted.keys() - {"version"}:
        return None
    if wanted and "version" in now and "version" not in wanted:
        # The keys that stay were written for this version, also where the file was there before and had none.
        wanted = {"version": now["version"]} | wanted
    if wanted == now:
        return file.now
    if is_json:
        return render_daemon_json(wanted, file.now)
    for attempt in (_merge_lines, _delete_keys):
        content = attempt(file, wanted, now)
        if content is not None and _says(file.path, content, wanted):
            return content
    keys = tuple(_list_differences(now, wanted))
    raise ConfigUneditable(file.path, keys, "the file was edited since, and other lines would change with them")


def compare(before: Mapping[str, Any], ours: Mapping[str, Any], now: Mapping[str, Any]) -> dict[str, Any]:
    """The present document, with the former value wherever the agent's value still stands."""
    result: dict[str, Any] = {}
    for key, value in now.items():
        then, set_by_us = before.get(key, _ABSENT), ours.get(key, _ABSENT)
        kept = _compare_value(then, set_by_us, value)
        if kept is not _ABSENT:
            result[key] = kept
    return result


def _compare_value(then: Any, set_by_us: Any, value: Any) -> Any:
    if set_by_us is _ABSENT or set_by_us == then:
        return value
    if isinstance(set_by_us, Mapping) and isinstance(value, Mapping):
        left = compare(then if isinstance(then, Mapping) else {}, set_by_us, value)
        return left if left or then is not _ABSENT else _ABSENT
    if value == set_by_us:
        return then
    if isinstance(set_by_us, list) and isinstance(value, list):
        known = then if isinstance(then, list) else []
        items = [item for item in value if item in known or item not in set_by_us]
        return items if items or then is not _ABSENT else _ABSENT
    return value


def _merge_lines(file: EditedFile, _wanted: Mapping[str, Any], _now: Mapping[str, Any]) -> bytes | None:
    """Reverse the agent's change of the lines, wherever these lines are now."""
    before, ours, now = (
        (content or b"").decode("utf-8", "replace").splitlines(keepends=True)
        for content in (file.before, file.ours, file.now)
    )
    places = _match(ours, now)
    dropped: set[int] = set()
    added: dict[int, list[str]] = {}
    for tag, first, last, start, end in difflib.SequenceMatcher(None, ours, before, autojunk=False).get_opcodes():
        if tag == "equal":
            continue
        found = [places[number] for number in range(first, last) if number in places]
        dropped.update(found)
        if start < end:
            place = found[0] if found else places.get(first - 1, -1) + 1
            added.setdefault(place, []).extend(before[start:end])
    lines = (
        line
        for number in range(len(now) + 1)
        for line in (*added.get(number, ()), *(now[number : number + 1] if number not in dropped else ()))
    )
    return "".join(lines).encode()


def _match(ours: list[str], now: list[str]) -> dict[int, int]:
    """Where each line of the agent's is now, with any indentation."""
    ours, now = ([line.strip() for line in lines] for lines in (ours, now))
    matcher = difflib.SequenceMatcher(None, ours, now, autojunk=False)
    return {
        block.a + offset: block.b + offset for block in matcher.get_matching_blocks() for offset in range(block.size)
    }


def _delete_keys(file: EditedFile, wanted: Mapping[str, Any], now: Mapping[str, Any]) -> bytes | None:
    """Key by key, for a file written anew from end to end."""
    try:
        document = tomlkit.parse(file.now.decode("utf-8"))
        for key in _list_differences(now, wanted):
            _put(document, key, _find(wanted, key))
        return tomlkit.dumps(document).encode("utf-8")
    except (TOMLKitError, RecursionError, TypeError, AttributeError, ValueError, KeyError):
        # A layout that the library cannot change; the caller names the keys.
        return None


def _list_differences(now: Mapping[str, Any], wanted: Mapping[str, Any], at: KeyPath = ()) -> Iterable[KeyPath]:
    """The paths of the differences between two documents, as high up as a whole table goes."""
    for key, value in now.items():
        other = wanted.get(key, _ABSENT)
        if isinstance(value, Mapping) and isinstance(other, Mapping):
            yield from _list_differences(value, other, (*at, key))
        elif other is _ABSENT or other != value:
            yield (*at, key)


def _find(document: Mapping[str, Any], key: KeyPath) -> Any:
    value: Any = document
    for part in key:
        value = value.get(part, _ABSENT) if isinstance(value, Mapping) else _ABSENT
    return value


def _put(document: Any, key: KeyPath, value: Any) -> None:
    table = document
    for part in key[:-1]:
        table = table[part]
    if value is _ABSENT:
        del table[key[-1]]
    else:
        table[key[-1]] = value


def _says(path: str, content: bytes, wanted: Mapping[str, Any]) -> bool:
    try:
        return parse_toml(path, content) == wanted
    except ConfigUnparsable:
        return False
