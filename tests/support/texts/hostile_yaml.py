"""YAML texts that end a process, fill its memory or raise what nobody expects, where they are read without bounds."""

from collections.abc import Mapping
from typing import Final

_DEPTH: Final = 100_000
HOSTILE: Final[Mapping[str, str]] = {
    "lists": "[" * _DEPTH,
    "closed lists": "a: " + "[" * _DEPTH + "]" * _DEPTH,
    "mappings": "{a: " * _DEPTH,
    "block lists": "- " * _DEPTH,
    "aliases": "a0: &a0 [1, 1, 1, 1, 1, 1, 1, 1, 1]\n"
    + "".join(f"a{n + 1}: &a{n + 1} [{', '.join([f'*a{n}'] * 9)}]\n" for n in range(12)),
    "anchored scalars": "".join(f"- &a{n} x\n- *a{n}\n" for n in range(5)) + "[" * _DEPTH,
    "itself": "&a [*a]",
    "digits": "a: " + "9" * 100_000,
    "date": "a: 2001-99-99",
    "bytes": "a: \x00",
    "tag": "!!python/object/apply:os.getpid []",
    "keys": "? {a: b}\n: c",
    "merge": "<<: 1",
}
