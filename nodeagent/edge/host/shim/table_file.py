"""The table of the runtime shim, in the format that `native/include/shim_table.h` describes.

Owns the order and the spelling of its lines, and its two files. Refuses values that the reader would refuse, so that a
bad value is noticed here and not by a container. All writing blocks; on the event loop it belongs in a worker thread.
"""

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Final

from nodeagent.edge.host.errors import ShimTableUnfit
from nodeagent.edge.host.files.atomic_file import write_atomically
from nodeagent.edge.host.files.sealed_file import seal
from nodeagent.model.shim import (
    OnMissing,
    ShimDevice,
    ShimEdits,
    ShimEntry,
    ShimEnv,
    ShimGroup,
    ShimHook,
    ShimMount,
    ShimNode,
    ShimPolicy,
    ShimTable,
)
from nodeagent.model.shim_names import SHIM_PLACE

NAME: Final = "nodeagent-shim-table"
VERSION: Final = 1
TABLE_FILE: Final = "table"
ON_MISSING_FILE: Final = "on_missing"
DIRECTORY: Final = Path("/var/lib/nodeagent") / SHIM_PLACE
"""The directory for a program that cannot find its own path; else the directory of this name beside the program."""
TABLE_LIMIT: Final = 4194304
LINES_LIMIT: Final = 65536
FIELDS_LIMIT: Final = 4096
EXTRAS: Final = ("common", "gds", "mofed", "gdrcopy", "nvswitch", "mig-config", "mig-monitor")
_MODE: Final = 0o600
_CONTROL: Final = re.compile(r"[\x00-\x1f\x7f]")


def write_table(directory: Path, table: ShimTable) -> None:
    """Replace the table; a shim running meanwhile reads the old table or the new table.

    Raises:
        ShimTableUnfit: The format cannot hold the table; the old table stays.
        FileNotWritten: The old table stays, or the new table may not survive a power cut.
    """
    body = render_table(table)
    write_atomically(directory / TABLE_FILE, seal(NAME.encode(), VERSION, body) + body, mode=_MODE)


def write_on_missing(directory: Path, answer: OnMissing) -> None:
    """Set the answer to a container that asks for GPUs while no table is usable.

    Raises:
        FileNotWritten: The old answer stays, or the new answer may not survive a power cut.
    """
    write_atomically(directory / ON_MISSING_FILE, f"{answer}\n".encode(), mode=_MODE)


def render_table(table: ShimTable) -> bytes:
    """The body: equal tables give equal bytes.

    Raises:
        ShimTableUnfit: A value has a control character, or a limit of the format is exceeded.
    """
    lines = [_render_line(fields) for fields in _list_lines(table)]
    body = "".join(lines).encode("utf-8", "surrogateescape")
    if len(lines) > LINES_LIMIT or len(body) > TABLE_LIMIT:
        raise ShimTableUnfit(f"it would have {len(lines)} lines and {len(body)} bytes")
    return body


def _render_line(fields: tuple[str, ...]) -> str:
    if len(fields) > FIELDS_LIMIT:
        raise ShimTableUnfit(f"a line would have {len(fields)} fields")
    for field in fields:
        if _CONTROL.search(field):
            raise ShimTableUnfit(f"{field!r} has a control character")
    return "\t".join(fields) + "\n"


def _list_lines(table: ShimTable) -> Iterator[tuple[str, ...]]:
    yield from _list_policy(table.policy)
    versions = (("cuda", table.cuda), ("driver", table.driver))
    yield from (("version", name, version) for name, version in versions if version)
    yield from (("fresh", path, text) for path, text in table.fresh)
    numbers: dict[ShimEdits, int] = {}
    for device in table.devices:
        for edits in device.edits:
            if edits not in numbers:
                numbers[edits] = len(numbers)
                yield "edits", str(numbers[edits])
                yield from map(_describe_entry, edits)
    for device in table.devices:
        yield _describe_device(device, ",".join(str(numbers[edits]) for edits in device.edits))


def _list_policy(policy: ShimPolicy) -> Iterator[tuple[str, ...]]:
    settings = {
        "accept_environment": str(int(policy.accept_environment)),
        "accept_mounts": str(int(policy.accept_mounts)),
        "disable_require": str(int(policy.disable_require)),
        "ignore_imex": str(int(policy.ignore_imex)),
        "mode": policy.mode,
        "default_kind": policy.default_kind,
        "supported": f"{policy.supported:x}",
        "debug": policy.debug,
    }
    yield from (("set", key, value) for key, value in settings.items())
    yield from (("runtime", each) for each in policy.runtimes)
    yield from (("swarm", each) for each in policy.swarm)
    yield from (("prefix", each) for each in policy.prefixes)
    yield from (("namespace", each) for each in policy.namespaces)


def _describe_entry(entry: ShimEntry) -> tuple[str, ...]:
    mask = f"{entry.wanted_by:x}"
    match entry:
        case ShimEnv():
            return "env", mask, f"{entry.name}={entry.value}"
        case ShimNode():
            return "node", mask, entry.path, entry.host_path, entry.permissions, f"{entry.mode:o}", str(entry.gid)
        case ShimMount():
            return "mount", mask, entry.path, entry.host_path, ",".join(entry.options)
        case ShimHook():
            return "hook", mask, entry.stage, entry.path, *entry.args
        case ShimGroup():
            return "gid", mask, str(entry.gid)


def _describe_device(device: ShimDevice, edits: str) -> tuple[str, ...]:
    legacy = (f"~{name}" for name in device.legacy_names)
    return "device", device.kind, edits, device.arch, device.brand, *device.names, *legacy
