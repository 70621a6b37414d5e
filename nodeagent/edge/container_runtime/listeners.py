"""Which of several processes of a program serves a socket, where the kernel hides the listener from clients.

The case of an agent in a pod with a process namespace of its own, with the host's processes only in the host's /proc.
Owns the two ways to find out: by a process's open sockets, given the right to look at another's process, and by the
process's configuration. Refuses to guess: where both ways leave several processes, no process is named.
"""

import os
import tomllib
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any, Final

from nodeagent.core.log.lines import get_logger
from nodeagent.edge.host.errors import HostError
from nodeagent.edge.host.files.pseudo_file import list_names, read_attribute, read_raw_attribute
from nodeagent.edge.host.machine.host_paths import HostPaths
from nodeagent.model.runtimes.record import RuntimeRecord

_TABLE_BYTES_MAX: Final = 16 * 1024 * 1024
_COLUMNS: Final = 8
_LISTENS: Final = 0x10000
"""The kernel's flag of a socket that takes connections (`__SO_ACCEPTCON`)."""
_log = get_logger(component="runtime")


def find_listener(processes: Sequence[Path], socket: str, record: RuntimeRecord, host: HostPaths) -> Path | None:
    """The process, by directory in /proc; a single process serves whatever socket answers."""
    if len(processes) < 2:
        return next(iter(processes), None)
    place = host.here(socket)

    def was_told(process: Path) -> bool:
        return any(host.here(each) == place for each in _list_told_paths(process, record, host))

    ways: tuple[Callable[[Path], bool], ...] = (lambda process: _has_open(process, socket, host), was_told)
    for is_it in ways:
        found = [process for process in processes if is_it(process)]
        if len(found) == 1:
            return found[0]
    return None


def read_arguments(process: Path) -> tuple[str, ...]:
    """The command line of a process; empty where hidden."""
    raw = read_raw_attribute(process / "cmdline").rstrip(b"\0")
    return tuple(part.decode("utf-8", "replace") for part in raw.split(b"\0")) if raw else ()


def _has_open(process: Path, socket: str, host: HostPaths) -> bool:
    """Whether the process has a listening socket of this name open."""
    inodes = {f"socket:[{inode}]" for inode in _list_listening(process, socket, host)}
    return bool(inodes) and any(_read_link(process / "fd" / name) in inodes for name in list_names(process / "fd"))


def _list_listening(process: Path, socket: str, host: HostPaths) -> Iterator[str]:
    """The inodes of listening sockets of the name in the network namespace of the process."""
    place, name = host.here(socket), os.path.basename(socket)  # noqa: PTH119  # the socket's own name, as text
    for line in read_attribute(process / "net/unix", limit_bytes=_TABLE_BYTES_MAX).splitlines()[1:]:
        row = line.split(maxsplit=_COLUMNS - 1)
        # An abstract name begins with @, and many sockets have none.
        is_file = len(row) == _COLUMNS and row[7].startswith("/") and row[7].endswith(name)
        if is_file and int(row[3], 16) & _LISTENS and host.here(row[7]) == place:
            yield row[6]


def _list_told_paths(process: Path, record: RuntimeRecord, host: HostPaths) -> Iterator[str]:
    """Absolute paths on the process's command line and in the process's configuration."""
    arguments = read_arguments(process)
    texts = [part.rpartition("=")[2] for part in arguments[1:]]
    texts += _list_texts(_read_toml(record.find_config_flag(arguments) or record.config_file, host))
    yield from (text for text in texts if text.startswith("/"))


def _read_toml(path: str, host: HostPaths) -> dict[str, Any]:
    try:
        return tomllib.loads((host.read(path) or b"").decode("utf-8"))
    except (HostError, ValueError, RecursionError) as error:
        # The plan reports the fault.
        _log.debug("runtime_configuration_unreadable", path=path, reason=str(error))
        return {}


def _list_texts(value: Any) -> Iterator[str]:
    if isinstance(value, str):
        yield value
    elif isinstance(value, dict):
        for each in value.values():
            yield from _list_texts(each)


def _read_link(path: Path) -> str:
    try:
        return str(path.readlink())
    except OSError:
        return ""
