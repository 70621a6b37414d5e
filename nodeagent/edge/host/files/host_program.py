"""Puts a program of ours where the container runtime starts programs.

Owns the copy on the host, its further names (links, never made over a program of somebody else), and the proof that the
program runs there, in the host's root as under the container runtime.
Programs come with the package, for each processor, made by `make native`.
A program is replaced by rename, so that a starting container runs the old program or the new program.
"""

import os
import secrets
import subprocess
import sys
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import Final

import nodeagent
from nodeagent.core.children.worker_thread import WorkerThread
from nodeagent.edge.host.errors import (
    FileNotWritten,
    FileUnreadable,
    OwnCommandUnknown,
    ProgramMissing,
    ProgramNameTaken,
    ProgramUnfit,
    describe_os_error,
)
from nodeagent.edge.host.files.atomic_file import identify, read_bounded, remove_leftovers
from nodeagent.edge.host.host_worker import HostWorker
from nodeagent.edge.host.machine.host_paths import HostPaths
from nodeagent.model.nvidia import CDI_HOOK, CONTAINER_CLI
from nodeagent.model.values import Value

BUILT: Final = Path(nodeagent.__file__).parent / "native" / "built" / os.uname().machine
_MODE: Final = 0o755
_DIRECTORY_MODE: Final = 0o755
_TIMEOUT_SECONDS: Final = 10.0
_CHECK_SECONDS: Final = 5.0
_SAID_LIMIT: Final = 300
_ENVIRONMENT: Final = {"PATH": "/usr/sbin:/usr/bin:/sbin:/bin"}
COMMAND: Final = "nodeagent"
_NAMES_KEY: Final = "cdi.nvidia_name_dir"
_IN_A_POD: Final = "KUBERNETES_SERVICE_HOST"


class Program(Value, frozen=True):
    """One program of this installation."""

    built: Path
    what: str
    """The program's name for people."""
    without: str
    """How to do without the program."""
    check: tuple[str, ...] = ("self-check",)
    """The arguments of a trial run."""


HOOK: Final = Program(
    built=BUILT / "nodeagent-cdi-hook",
    what="the CDI hook",
    without="set `cdi.hooks: none`",
)


def locate_shared(path: Path, host: HostPaths, shared: Path | None) -> Path:
    """Path in this process of a host's path, also below a directory mounted under the host's own name."""
    return path if shared is not None and path.is_relative_to(shared) else host.here(str(path))


def link_program(name: Path, place: Path, program: Path, key: str) -> bool:
    """Make `name` of the host, seen by this process at `place`, a link to the program; False when it is one.

    Raises:
        ProgramNameTaken: Another program has the name; `key` is the setting to leave empty.
        FileNotWritten: The link cannot be made.
    """
    if place.is_symlink() and place.readlink() == program:
        return False
    if os.path.lexists(place):
        raise ProgramNameTaken(name, program, key)
    temporary = place.with_name(f".{place.name}.{secrets.token_hex(4)}.tmp")
    try:
        place.parent.mkdir(mode=_DIRECTORY_MODE, parents=True, exist_ok=True)
        remove_leftovers(place)
        temporary.symlink_to(program)
        temporary.rename(place)
    except OSError as error:
        with suppress(OSError):  # the first failure is the failure to report
            temporary.unlink(missing_ok=True)
        raise FileNotWritten(name, "make the link", error, replaced=False) from error
    return True


class HostProgram:
    """Installs a program of the agent on the host.

    `shared` is a directory mounted under the host's own name, writable where the rest of the host is read only.
    """

    def __init__(
        self,
        worker: WorkerThread,
        program: Program = HOOK,
        *,
        host: HostPaths | None = None,
        shared: Path | None = None,
        environment: Mapping[str, str] | None = None,
    ) -> None:
        self._worker, self._program, self._host, self._shared = worker, program, host or HostPaths(), shared
        self._is_in_pod = _IN_A_POD in (os.environ if environment is None else environment)
        self._installed: tuple[Path, tuple[int, ...]] | None = None
        self._proven: tuple[Path, tuple[int, ...]] | None = None

    async def install(self, path: Path) -> bool:
        """Install the agent's exact program, executable; False when already installed."""
        worker = HostWorker(self._worker, path, _TIMEOUT_SECONDS)
        return await worker.run(lambda: self._install(path), f"installing {self._program.what}")

    async def check(self, path: Path) -> None:
        """Run the program in its place, as the container runtime would.

        Raises:
            NodeagentError: The program does not run, lacks something, or cannot be checked by this process.
        """
        worker = HostWorker(self._worker, path, _TIMEOUT_SECONDS)
        await worker.run(lambda: self.check_nowait(path), f"trying {self._program.what}")

    async def name(self, directory: Path, hook: Path | None) -> bool:
        """Link NVIDIA's names in the directory to the hook, if there is one, and to the agent's command on the host.

        Raises:
            NodeagentError: Another program has a name, a link cannot be made, or the agent's command is not known.
        """
        worker = HostWorker(self._worker, directory, _TIMEOUT_SECONDS)
        return await worker.run(lambda: self._name(directory, hook), "naming programs as NVIDIA's")

    def _name(self, directory: Path, hook: Path | None) -> bool:
        place = locate_shared(directory, self._host, self._shared)
        made = hook is not None and link_program(directory / CDI_HOOK, place / CDI_HOOK, hook, _NAMES_KEY)
        if self._is_in_pod or not self._host.is_own:
            # The host has no command of an agent that a pod brings.
            return made
        command = Path(sys.argv[0]).absolute()
        if command.name != COMMAND or not os.access(command, os.X_OK):
            raise OwnCommandUnknown(CONTAINER_CLI, command)
        return link_program(directory / CONTAINER_CLI, place / CONTAINER_CLI, command, _NAMES_KEY) or made

    def check_nowait(self, path: Path) -> None:
        """As `check`, in this thread; for command lines.

        Raises:
            ProgramUnfit: The program does not run, or this process cannot find out.
        """
        if self._is_in_pod and self._host.is_own:
            raise ProgramUnfit(path, "this pod does not see the host, `node.host_root` is /")
        place = locate_shared(path, self._host, self._shared)
        identity = identify(place)
        if not identity:
            raise ProgramUnfit(path, "it is not there")
        if (place, identity) != self._proven:
            self._run(path)
            self._proven = place, identity

    def _run(self, path: Path) -> None:
        command = [] if self._host.is_own else ["chroot", str(self._host.root)]
        try:
            done = subprocess.run(  # noqa: S603  # our own program, compared with the installation's
                [*command, str(path), *self._program.check],
                stdin=subprocess.DEVNULL,
                capture_output=True,
                timeout=_CHECK_SECONDS,
                check=False,
                env=_ENVIRONMENT,
            )
        except OSError as error:
            raise ProgramUnfit(path, describe_os_error(error)) from error
        except subprocess.TimeoutExpired as error:
            raise ProgramUnfit(path, f"it did not end within {_CHECK_SECONDS:.0f} s") from error
        if done.returncode:
            said = done.stderr.decode("utf-8", "replace").strip()[:_SAID_LIMIT]
            raise ProgramUnfit(path, said or f"it ended with {done.returncode}")

    def _install(self, path: Path) -> bool:
        place = locate_shared(path, self._host, self._shared)
        if (place, identify(place)) == self._installed:
            return False
        is_new = self._put(path, place)
        self._installed = place, identify(place)
        return is_new

    def _put(self, path: Path, place: Path) -> bool:
        try:
            program = read_bounded(self._program.built)
        except FileUnreadable as error:
            raise ProgramMissing(self._program.built, self._program.what, self._program.without) from error
        # A path with the host's own name here is written by that name.
        host = HostPaths() if place == path else self._host
        if host.read(str(path)) == program and place.stat().st_mode & _MODE == _MODE:
            return False
        host.write(str(path), program, mode=_MODE)
        try:
            # An existing file keeps its mode when its content is replaced.
            place.chmod(_MODE)
        except OSError as error:
            raise FileNotWritten(path, "make it executable", error, replaced=True) from error
        return True
