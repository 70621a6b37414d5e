"""Reads a runtime's configuration files in the order in which the runtime itself reads them.

Owns how each runtime finds its further files: containerd by its imports, CRI-O by its directory, Docker not at all.
Refuses to merge them: what the sum of them means is for the plan.
"""

import glob
import os
import tomllib
from collections.abc import Iterator
from pathlib import Path
from typing import Final

from nodeagent.edge.host.atomic_file import read_bounded
from nodeagent.edge.host.errors import FileUnreadable, HostError
from nodeagent.model.runtime import ConfigFile, ConfigTree, RuntimeKind

_FILES_LIMIT: Final = 64
_LIMIT_BYTES: Final = 4 * 1024 * 1024


def read_config_tree(kind: RuntimeKind, main: str, *, extra: tuple[str, ...] = ()) -> ConfigTree:
    """Every file that the runtime reads, and those of `extra` that exist, last."""
    files: dict[str, ConfigFile] = {}
    problems: list[str] = []
    _read_into(files, main)
    for path in _list_further(kind, main, files):
        if len(files) >= _FILES_LIMIT:
            problems.append(f"{main} brings in more than {_FILES_LIMIT} files")
            break
        if path not in files:
            _read_into(files, path)
    for path in extra:
        if path not in files and Path(path).exists():
            _read_into(files, path)
    return ConfigTree(files=tuple(files.values()), problems=tuple(problems))


def _list_further(kind: RuntimeKind, main: str, files: dict[str, ConfigFile]) -> Iterator[str]:
    if kind is RuntimeKind.CONTAINERD:
        yield from _list_imports(main, files)
    elif kind is RuntimeKind.CRIO:
        directory = f"{main}.d"
        for place, below, names in os.walk(directory):
            below.sort()
            yield from (f"{place}/{name}" for name in sorted(names))


def _list_imports(path: str, files: dict[str, ConfigFile]) -> Iterator[str]:
    """What a file imports, and what those import; each file once, so that a circle ends."""
    document = _parse(files[path].content if path in files else None)
    patterns = document.get("imports")
    for pattern in patterns if isinstance(patterns, list) else ():
        if not isinstance(pattern, str):
            continue
        for found in sorted(glob.glob(os.path.join(os.path.dirname(path), pattern))):  # noqa: PTH118, PTH120, PTH207  # the pattern may be absolute or relative, and is no path
            if found not in files:
                yield found
                yield from _list_imports(found, files)


def _parse(content: bytes | None) -> dict[str, object]:
    try:
        return tomllib.loads((content or b"").decode("utf-8"))
    except (ValueError, RecursionError):
        # The plan names the place of the fault; here it only means that nothing is imported.
        return {}


def _read_into(files: dict[str, ConfigFile], path: str) -> None:
    try:
        files[path] = ConfigFile(path=path, content=read_bounded(Path(path), limit_bytes=_LIMIT_BYTES))
    except FileUnreadable as error:
        files[path] = ConfigFile(path=path, problem="" if error.is_absent else str(error))
    except HostError as error:
        files[path] = ConfigFile(path=path, problem=str(error))
