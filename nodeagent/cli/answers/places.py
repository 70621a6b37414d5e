"""The places of running agents and simulations, and whether their answers are trusted.

All simulations of a user lie side by side in one directory without write access for others, a directory each.
"""

import os
import tempfile
from collections.abc import Iterator, Mapping
from pathlib import Path

import msgspec
from msgspec import Struct

from nodeagent.config.files import DEFAULT_CONFIG_FILE
from nodeagent.edge.host.errors import HostError
from nodeagent.edge.host.files.atomic_file import read_bounded, write_atomically
from nodeagent.edge.host.files.private_directory import open_private
from nodeagent.edge.host.processes.socket_owners import can_connect

ADMIN_SOCKET = "admin.sock"
RECORD = "simulation.json"
RECORD_BYTES_MAX = 64 * 1024


class SimulationRecord(Struct, frozen=True):
    """A simulation's entry in its directory, for commands that search simulations."""

    name: str
    profile: str
    pid: int
    url: str = ""

    def __str__(self) -> str:
        return f"{self.name} ({', '.join(filter(None, (self.profile, self.url, f'process {self.pid}')))})"


def find_simulations_dir(environ: Mapping[str, str]) -> Path:
    """The directory of this user's simulations, where `simulate fault` finds them."""
    base = environ.get("XDG_RUNTIME_DIR") or environ.get("TMPDIR") or tempfile.gettempdir()
    return Path(base) / f"nodeagent-simulations-{os.geteuid()}"


def has_own_agent(run_dir: Path, config_file: Path = DEFAULT_CONFIG_FILE) -> bool:
    """Whether this machine has an agent of its own, running or not: its directory or configuration is there."""
    return run_dir.exists() or config_file.exists()


def find_admin_socket(directory: Path) -> Path:
    """The admin socket of the simulation in this directory."""
    return directory / "run" / ADMIN_SOCKET


def list_simulations(environ: Mapping[str, str]) -> tuple[SimulationRecord, ...]:
    """This user's running simulations, by name; empty where nothing was ever simulated.

    Raises:
        DirectoryNotPrivate: The directory of simulations is not this user's own.
    """
    directory = find_simulations_dir(environ)
    try:
        os.close(open_private(directory))
        return tuple(sorted(_look(directory), key=lambda record: record.name))
    except FileNotFoundError:  # or gone between the two calls, with the last simulation
        return ()


def _look(directory: Path) -> Iterator[SimulationRecord]:
    for place in directory.iterdir():
        # A simulation without an answer is starting, or was killed; without a record it has just ended.
        if can_connect(find_admin_socket(place)) and (record := read_record(place)) is not None:
            yield record


def read_record(place: Path) -> SimulationRecord | None:
    """The record of the simulation in this directory; `None` without a readable record."""
    try:
        content = read_bounded(place / RECORD, limit_bytes=RECORD_BYTES_MAX, follow_symlink=False)
        return msgspec.json.decode(content, type=SimulationRecord)
    except (HostError, msgspec.DecodeError):
        return None


def write_record(place: Path, record: SimulationRecord) -> None:
    """Write the record of the simulation in this directory."""
    write_atomically(place / RECORD, msgspec.json.encode(record), mode=0o600)
