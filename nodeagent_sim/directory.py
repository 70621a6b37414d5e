"""A simulation's own directory: claimed by a lock that ends with the process, empty at the start, gone at the end."""

import contextlib
import fcntl
import itertools
import os
import re
import shutil
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path

from nodeagent.cli.answers.places import SimulationRecord, find_simulations_dir, read_record, write_record
from nodeagent.cli.frame.exit_codes import ExitCode
from nodeagent.cli.main import CommandFailed
from nodeagent.edge.host.errors import HostError
from nodeagent.edge.host.files.private_directory import MODE, make_private, open_private

NAME = re.compile(r"[a-z0-9][a-z0-9_-]{0,15}")
"""Short, because unix sockets lie below the directory and their paths may have 107 bytes."""


@contextlib.contextmanager
def claim_place(environ: Mapping[str, str], name: str, profile: str, *, keep_state: bool) -> Iterator[Path]:
    """The directory of a simulation of this name, or of the first free number without a name.

    The directory begins empty and is removed at the end, unless its state is to be kept.
    """
    if name and not NAME.fullmatch(name):
        raise CommandFailed(f"--simulation {name!r}: give up to 16 small letters, digits, - and _", ExitCode.BAD_INPUT)
    parent = find_simulations_dir(environ)
    with contextlib.ExitStack() as stack:
        try:
            descriptor, place = _claim(parent, (name,) if name else map(str, itertools.count(1)))
            stack.callback(os.close, descriptor)
            if not keep_state:
                stack.callback(_remove, place)
                _empty(descriptor)
            write_record(place, SimulationRecord(place.name, profile, os.getpid()))
        except HostError as error:
            raise CommandFailed(str(error), ExitCode.BAD_INPUT) from error
        except OSError as error:
            raise CommandFailed(f"cannot make {parent}: {error.strerror}", ExitCode.BAD_INPUT) from error
        yield place


def _remove(place: Path) -> None:
    shutil.rmtree(place, ignore_errors=True)
    with contextlib.suppress(OSError):  # another simulation is in there
        place.parent.rmdir()


def _claim(parent: Path, names: Iterable[str]) -> tuple[int, Path]:
    """The first free directory, and the descriptor that holds it from now on."""
    place = parent
    for name in names:
        place = parent / name
        while True:
            descriptor = _open_place(parent, name)
            try:
                fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                os.close(descriptor)
                break
            if _is_in_place(descriptor, place):
                return descriptor, place
            os.close(descriptor)  # removed by the holder before
    raise CommandFailed(
        f"simulation {read_record(place) or place.name} runs already; stop it, or name another with --simulation",
        ExitCode.BAD_INPUT,
    )


def _open_place(parent: Path, name: str) -> int:
    while True:
        parent.parent.mkdir(parents=True, exist_ok=True)
        with contextlib.suppress(FileNotFoundError):  # the last simulation removed the common directory
            return _open_below(make_private(parent), parent / name)


def _open_below(beside: int, place: Path) -> int:
    try:
        with contextlib.suppress(FileExistsError):
            os.mkdir(place.name, MODE, dir_fd=beside)
        return open_private(place, beside=beside)
    finally:
        os.close(beside)


def _is_in_place(descriptor: int, place: Path) -> bool:
    try:
        return os.path.samestat(os.fstat(descriptor), place.lstat())
    except FileNotFoundError:
        return False


def _empty(directory: int) -> None:
    """Remove the remains of a killed simulation; links are removed, never followed."""
    with os.scandir(directory) as entries:
        found = [(entry.name, entry.is_dir(follow_symlinks=False)) for entry in entries]
    for name, is_directory in found:
        if is_directory:
            shutil.rmtree(name, dir_fd=directory)
        else:
            os.unlink(name, dir_fd=directory)
