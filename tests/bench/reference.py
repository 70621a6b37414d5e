"""The committed reference: `docs/bench/reference.json`, from which the pages and pictures of the docs are made.

Each part of it knows on what it was taken, for parts are taken anew by themselves.
Owns the form of the file.
"""

import json
import os
import platform
import subprocess
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import msgspec

from nodeagent import __version__
from tests.bench.curves import Curve
from tests.bench.peers.table import Line
from tests.bench.rows import Row, to_json

PATH = Path(__file__).parents[2] / "docs" / "bench" / "reference.json"


class KeptRow(msgspec.Struct, frozen=True):
    name: str
    unit: str
    runs: int
    p50: float
    p90: float
    p99: float
    limit: float | None = None
    limit_is_for: float = 0.5


class Taken(msgspec.Struct, frozen=True):
    """On what, and of what."""

    commit: str
    version: str
    machine: str
    load: str
    nice: int


class Group(msgspec.Struct, frozen=True):
    """Rows that were taken together."""

    taken: Taken
    rows: tuple[KeptRow, ...]


class Curves(msgspec.Struct, frozen=True):
    taken: Taken
    curves: tuple[Curve, ...]


class Story(msgspec.Struct, frozen=True):
    """A chaos story as `python -m tests.chaos --result` tells of it."""

    seed: int
    steps: int
    seconds: float
    admitted: int
    refused: int
    ready_seconds: float
    well_seconds: float
    stall_seconds: float
    violation: str
    commit: str = ""
    rooms: Mapping[str, int] = {}
    """Where all doors of the node are open, what has come of those who came by them."""


class Stories(msgspec.Struct, frozen=True):
    """All stories of one run."""

    taken: Taken
    stories: tuple[Story, ...]


class Soak(msgspec.Struct, frozen=True):
    """A long run as `python -m tests.soak --result` tells of it."""

    hours: float
    speed: int
    seconds: float
    steps: int
    admitted: int
    refused: int
    moments: tuple[Mapping[str, float], ...]
    problems: tuple[str, ...]
    commit: str = ""
    rooms: Mapping[str, int] = {}
    """As of a story."""


class Soaks(msgspec.Struct, frozen=True):
    """The newest of each length."""

    taken: Taken
    soaks: tuple[Soak, ...]


class Peers(msgspec.Struct, frozen=True):
    """The agent beside NVIDIA's programs, the last run of each group."""

    taken: Taken
    lines: tuple[Line, ...]


class Reference(msgspec.Struct, frozen=True):
    groups: dict[str, Group] = {}
    curves: Curves | None = None
    chaos: Stories | None = None
    rooms: Stories | None = None
    """Stories with all doors of the node open."""
    soak: Soaks | None = None
    peers: Peers | None = None


def read(path: Path = PATH) -> Reference:
    """As committed; empty before the first."""
    return msgspec.json.decode(path.read_bytes(), type=Reference) if path.exists() else Reference()


def write(reference: Reference, path: Path = PATH) -> None:
    """In a form whose changes can be read."""
    path.parent.mkdir(exist_ok=True)
    path.write_text(json.dumps(_round(msgspec.to_builtins(reference)), indent=1) + "\n")


def keep_rows(group: str, rows: Sequence[Row]) -> None:
    kept = Group(taken=describe(), rows=msgspec.convert(to_json(rows), tuple[KeptRow, ...]))
    reference = read()
    write(msgspec.structs.replace(reference, groups={**reference.groups, group: kept}))


def keep_peers(lines: Sequence[Line]) -> None:
    """A group of rows that was measured anew takes the place of its own."""
    known, measured = read(), {line.group for line in lines}
    others = [line for line in (known.peers.lines if known.peers else ()) if line.group not in measured]
    write(msgspec.structs.replace(known, peers=Peers(taken=describe(), lines=(*others, *lines))))


def keep_curves(curves: Sequence[Curve]) -> None:
    write(msgspec.structs.replace(read(), curves=Curves(taken=describe(), curves=tuple(curves))))


def keep_stories(lines: Path) -> None:
    """Of a file that stories were added to; the last word on each seed counts."""
    told = _read_lines(lines, Story)
    reference = read()
    for place in ("chaos", "rooms"):
        stories = {story.seed: story for story in told if bool(story.rooms) is (place == "rooms")}
        if stories:
            kept = Stories(taken=describe(), stories=tuple(stories[seed] for seed in sorted(stories)))
            reference = msgspec.structs.replace(reference, **{place: kept})
    write(reference)


def keep_soaks(lines: Path) -> None:
    """Of a file that long runs were added to; the last of each length counts."""
    soaks = {(soak.hours, soak.speed, bool(soak.rooms)): soak for soak in _read_lines(lines, Soak)}
    kept = tuple(soaks[key] for key in sorted(soaks))
    write(msgspec.structs.replace(read(), soak=Soaks(taken=describe(), soaks=kept)))


def _read_lines(path: Path, kind: type[Any]) -> list[Any]:
    return [msgspec.json.decode(line, type=kind) for line in path.read_bytes().splitlines()]


def describe() -> Taken:
    """This tree on this machine, now."""
    python = f"Python {platform.python_version()}"
    return Taken(
        commit=find_commit(),
        version=__version__,
        machine=f"{_find_processor()}, {os.cpu_count()} processors, {_count_gib()} GiB, {python}",
        load=f"{os.getloadavg()[0]:.1f}",
        nice=os.nice(0),
    )


def find_commit() -> str:
    done = subprocess.run(["git", "rev-parse", "--short=10", "HEAD"], capture_output=True, text=True, check=False)
    return done.stdout.strip() or "unknown"


def _find_processor() -> str:
    lines = Path("/proc/cpuinfo").read_text().splitlines()
    names = [line.partition(":")[2].strip() for line in lines if line.startswith("model name")]
    return names[0] if names else platform.machine()


def _count_gib() -> int:
    return round(os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / (1 << 30))


_FIGURES = 4


def _round(value: Any) -> Any:
    """To as many figures as mean something; so that a run taken anew changes only what changed."""
    if isinstance(value, float):
        return float(f"{value:.{_FIGURES}g}")
    if isinstance(value, dict):
        return {key: _round(each) for key, each in value.items()}
    if isinstance(value, list | tuple):
        return [_round(each) for each in value]
    return value
