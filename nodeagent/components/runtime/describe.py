"""The difference between a file's present and wanted content, in a few words, for people in search of the writer."""

import json
from collections.abc import Iterator, Mapping
from typing import Any, Final

from nodeagent.components.runtime.plan_docker import is_daemon_json, parse_daemon_json
from nodeagent.components.runtime.toml_edit import KeyPath, parse_toml
from nodeagent.model.runtime import FileChange

_MOST: Final = 3


def describe_difference(change: FileChange) -> str:
    """The file, and the settings with wrong values, each with both values.

    Raises:
        ConfigUnparsable: one of the two is no document.
    """
    parse = parse_daemon_json if is_daemon_json(change.after) else parse_toml
    before, after = parse(change.path, change.before), parse(change.path, change.after)
    found = [f"{'.'.join(key)} is {now}, not {wanted}" for key, now, wanted in _list_differences(before, after)]
    more = f" and {len(found) - _MOST} more" if len(found) > _MOST else ""
    return f"{change.path} ({', '.join(found[:_MOST])}{more})"


def _list_differences(
    before: Mapping[str, Any], after: Mapping[str, Any], at: KeyPath = ()
) -> Iterator[tuple[KeyPath, str, str]]:
    for key, wanted in after.items():
        now = before.get(key)
        if isinstance(wanted, Mapping):
            yield from _list_differences(now if isinstance(now, Mapping) else {}, wanted, (*at, key))
        elif key not in before or now != wanted:
            yield (*at, key), _render(now) if key in before else "missing", _render(wanted)


def _render(value: Any) -> str:
    return json.dumps(value, ensure_ascii=False, default=str)
