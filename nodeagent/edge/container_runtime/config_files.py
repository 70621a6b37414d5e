"""Reads a runtime's configuration files in the order in which the runtime itself reads them.

Owns the ways in which a runtime finds further files: by imports, by a directory, or not at all.
Refuses to merge the files: the merged meaning is for the plan.
"""

import os
import re
import tomllib
from collections.abc import Iterator, Mapping
from pathlib import PurePosixPath
from typing import Final

from nodeagent.edge.host.errors import HostError
from nodeagent.edge.host.machine.host_paths import HostPaths
from nodeagent.model.runtime import ConfigFile, ConfigTree, RuntimeKind
from nodeagent.model.runtimes import RUNTIMES
from nodeagent.model.runtimes.containerd import list_snap_places
from nodeagent.model.runtimes.record import FurtherFiles

_VARIABLE: Final = re.compile(r"\$\{\w+\}")
_FILES_LIMIT: Final = 64
_LIMIT_BYTES: Final = 4 * 1024 * 1024


def read_config_tree(
    kind: RuntimeKind, main: str, *, extra: tuple[str, ...] = (), host: HostPaths | None = None
) -> ConfigTree:
    """All files that the runtime reads, then existing files of `extra`; a link in place of an extra file is a fault."""
    host = host or HostPaths()
    files: dict[str, ConfigFile] = {}
    problems: list[str] = []
    _read_into(files, main, host)
    for path in _list_further(kind, main, files, problems, host):
        if len(files) >= _FILES_LIMIT:
            problems.append(f"{main} brings in more than {_FILES_LIMIT} files")
            break
        if path not in files:
            _read_into(files, path, host)
    for path in extra:
        if host.is_link(path):
            problem = f"{path} is a symbolic link, and none is followed there: take it away"
            files[path] = ConfigFile(path=path, problem=problem)
        elif path not in files and host.here(path).exists():
            _read_into(files, path, host)
    return ConfigTree(files=tuple(files.values()), problems=tuple(problems))


def _list_further(
    kind: RuntimeKind, main: str, files: dict[str, ConfigFile], problems: list[str], host: HostPaths
) -> Iterator[str]:
    record = RUNTIMES[kind]
    match record.further_files:
        case FurtherFiles.IMPORTS:
            yield from _list_imports(main, files, problems, host)
        case FurtherFiles.DIRECTORY:
            # The directory's name does not depend on the main file's name in the daemon's arguments.
            yield from host.walk(str(PurePosixPath(main).with_name(f"{PurePosixPath(record.config_file).name}.d")))
        case FurtherFiles.CONFS:
            directory = PurePosixPath(f"{main}.d")
            paths = map(PurePosixPath, host.walk(str(directory)))
            yield from (str(path) for path in paths if path.parent == directory and path.suffix == ".conf")
        case FurtherFiles.NONE:
            return


def _list_imports(main: str, files: dict[str, ConfigFile], problems: list[str], host: HostPaths) -> Iterator[str]:
    """A file's imports, then the imports of imports, in containerd's order; each file once, so that a circle ends."""
    pending = [main]
    for path in pending:
        content = files[path].content if path in files else None
        document = _parse(_fill(content or b"", list_snap_places(main)) if path == main else content)
        patterns = document.get("imports")
        for pattern in patterns if isinstance(patterns, list) else ():
            if not isinstance(pattern, str):
                continue
            if path == main and (unknown := _VARIABLE.search(pattern)) and list_snap_places(main):
                problems.append(
                    f"{path} imports {pattern}, and its start script alone knows what {unknown[0]} is:"
                    " write what stands for it into the template"
                )
                continue
            # Normalised, so that a file named in several ways is one file.
            absolute = os.path.normpath(os.path.join(os.path.dirname(path), pattern))  # noqa: PTH118, PTH120  # the pattern may be absolute or relative, and is no path
            found = list(host.list_matching(absolute))
            if not found and "*" not in pattern:
                problems.append(
                    f"{path} imports {pattern}, which is not there, and containerd does not start without it:"
                    " put it there, or take it out of `imports`"
                )
            for each in found:
                if each not in files and each not in pending:
                    pending.append(each)
                    yield each


def _fill(content: bytes, variables: Mapping[bytes, bytes]) -> bytes:
    for name, value in variables.items():
        content = content.replace(name, value)
    return content


def _parse(content: bytes | None) -> dict[str, object]:
    try:
        return tomllib.loads((content or b"").decode("utf-8"))
    except (ValueError, RecursionError):
        # The plan names the place of the fault; here a fault only means no imports.
        return {}


def _read_into(files: dict[str, ConfigFile], path: str, host: HostPaths) -> None:
    try:
        files[path] = ConfigFile(path=path, content=host.read(path, limit_bytes=_LIMIT_BYTES))
    except HostError as error:
        files[path] = ConfigFile(path=path, problem=str(error))
