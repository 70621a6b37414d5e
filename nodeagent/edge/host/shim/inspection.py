"""Inspects an installed runtime shim as the shim itself would, for people; changes nothing."""

import os
from pathlib import Path

from nodeagent.edge.host.errors import HostError
from nodeagent.edge.host.files.atomic_file import read_bounded
from nodeagent.edge.host.files.host_program import locate_shared
from nodeagent.edge.host.files.sealed_file import seal
from nodeagent.edge.host.machine.host_paths import HostPaths
from nodeagent.edge.host.shim.table_file import NAME, ON_MISSING_FILE, TABLE_FILE, VERSION
from nodeagent.model.values import Value

_ASKED_BY_PLAIN_NAMES = (["device", "gpu"], ["device", "parent"])


class ShimSight(Value, frozen=True):
    """The state of an installed shim."""

    program: str
    problem: str = ""
    """Why no container can be started through the shim; empty when containers can."""
    table_problem: str = ""
    """Why the shim gives no container a GPU; empty when the table is usable."""
    devices: int = 0
    """The number of GPUs and MIG devices that containers can ask for."""
    passes: bool = False
    """Whether a container that asks for GPUs starts without GPUs where no table is usable."""


def inspect_shim(program: Path, directory: Path, host: HostPaths, shared: Path | None = None) -> ShimSight:
    """The state of program and table; this blocks."""
    place, table = (locate_shared(path, host, shared) for path in (program, directory))
    content = _read(table / TABLE_FILE)
    wrong, lines = (f"{directory / TABLE_FILE} is not there", []) if content is None else _open(content)
    return ShimSight(
        program=str(program),
        problem=_judge_program(place),
        table_problem=wrong or next(filter(None, (_find_stale(line, host) for line in lines)), ""),
        devices=sum(line[:2] in _ASKED_BY_PLAIN_NAMES for line in lines),
        passes=_read(table / ON_MISSING_FILE) == b"pass\n",
    )


def _judge_program(place: Path) -> str:
    if not place.is_file():
        return "it is not there"
    return "" if os.access(place, os.X_OK) else "it cannot be executed"


def _open(content: bytes) -> tuple[str, list[list[str]]]:
    first, _, body = content.partition(b"\n")
    words = first.split(b" ")
    if first + b"\n" == seal(NAME.encode(), VERSION, body):
        return "", [line.split("\t") for line in body.decode("utf-8", "replace").splitlines()]
    if words[0] == NAME.encode() and words[1:2] != [b"%d" % VERSION]:
        return f"its table is not of version {VERSION}, which this installation writes", []
    return "its table is damaged", []


def _find_stale(fields: list[str], host: HostPaths) -> str:
    if fields[0] != "fresh":
        return ""
    _, path, text = fields
    # The kernel's own files are the same in a container, and may be missing in the container's view of the host.
    here = host.here(path)
    found = (_read(here if here.exists() else Path(path)) or b"").partition(b"\n")[0].decode("utf-8", "replace")
    return "" if found == text else f"its table is out of date: {path} says {found or 'nothing'} and not {text}"


def _read(path: Path) -> bytes | None:
    try:
        return read_bounded(path)
    except HostError:
        return None
