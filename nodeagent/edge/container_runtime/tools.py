"""Runs the runtime's own tools: the check of a configuration before the files are written.

Owns the command lines, and how to run a program with the host's files. The new configuration is checked in a scratch
directory, with every import named explicitly, so that the tool judges exactly the daemon's future input.
"""

import re
import subprocess
import tempfile
import tomllib
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path, PurePosixPath
from typing import Any, Final

import tomlkit

from nodeagent.edge.container_runtime.errors import ConfigRefused, ProgramMissing
from nodeagent.edge.host.driver.roots import see_from_host
from nodeagent.edge.host.errors import FileNotWritten
from nodeagent.edge.host.machine.host_paths import HostPaths
from nodeagent.model.runtime import ConfigTree, RuntimeKind
from nodeagent.model.runtimes import RUNTIMES
from nodeagent.model.runtimes.record import MAIN, FurtherFiles, RuntimeRecord

_CHECK_SECONDS: Final = 20.0
SAID_LIMIT: Final = 500
_HOST_ENVIRONMENT: Final = (
    "PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin:/snap/bin",
    # `systemctl` does nothing in a root other than the first process's, unless told to.
    "SYSTEMD_IGNORE_CHROOT=1",
    # systemctl's private socket is shut for a process that does not see systemd; the bus is open.
    "SYSTEMCTL_FORCE_BUS=1",
)
_IMPORTS: Final = re.compile(r"^imports[ \t]*=[ \t]*\[[^\]]*\][ \t]*(#[^\n]*)?\n?", re.MULTILINE)


def check_config(kind: RuntimeKind, executable: str, tree: ConfigTree, host: HostPaths | None = None) -> bool:
    """Have the runtime's own program check the planned configuration; False for a program without a check.

    Raises:
        ConfigRefused: the program does not accept the configuration.
        ProgramMissing: the program is gone.
        FileNotWritten: there is no place for the copy to check.
    """
    host = host or HostPaths()
    record = RUNTIMES[kind]
    # Another program may have opened the socket for the daemon, as systemd does with socket units.
    if not record.check or Path(executable).name != record.program:
        return False
    if not host.here(executable).exists():
        raise ProgramMissing(executable)
    if record.check_flag and not _knows_flag(enter_root(host.root, [executable, "--help"]), record.check_flag):
        return False
    with make_directory(host, tree.files[0].path) as directory:
        main = _write_copy(host, directory, record, tree)
        command = [executable, *(main if part == MAIN else part for part in record.check)]
        said = _run(enter_root(host.root, command), _CHECK_SECONDS)
        if said is not None:
            raise ConfigRefused(executable, said)
    return True


def enter_root(host_root: Path, command: Sequence[str]) -> list[str]:
    """The command line that runs a host's program with the host's files, from a container that sees the files."""
    if host_root == Path("/"):
        return list(command)
    return ["chroot", str(host_root), "/usr/bin/env", *_HOST_ENVIRONMENT, *command]


def find_host_root(proc_root: Path = Path("/proc")) -> Path:
    """The host's root by the first process, where visible and not this process's own root; else `/`."""
    first = proc_root / "1" / "root"
    try:
        is_own = first.samefile("/")
    except OSError:
        # Not allowed to look, or hidden: then no program of the host could be run either.
        return Path("/")
    return Path("/") if is_own else first


@contextmanager
def make_directory(host: HostPaths, main: str) -> Iterator[str]:
    """A temporary directory on the host, visible to both the agent and the host's program.

    An agent in a container, or in a strict unit, may have no writable directory but the directory of the configuration.
    """
    places = [None if host.is_own else "/run", str(PurePosixPath(main).parent)]
    failure: OSError | None = None
    for place in places:
        try:
            made = tempfile.TemporaryDirectory(prefix=".nodeagent-check-", dir=place and host.here(place))
        except OSError as error:
            failure = error
            continue
        with made as directory:
            yield str(see_from_host(Path(directory), host.root))
        return
    assert failure is not None
    raise FileNotWritten(Path(main), "make a copy for its program to judge", failure, replaced=False) from failure


def _write_copy(host: HostPaths, directory: str, record: RuntimeRecord, tree: ConfigTree) -> str:
    """Copy the files under other names, with explicit imports in the main file."""
    main, *others = [(file.content or b"").decode("utf-8", "replace") for file in tree.files]
    paths = [f"{directory}/import-{number}.toml" for number, _ in enumerate(others)]
    for path, text in zip(paths, others, strict=True):
        host.here(path).write_text(_drop_imports(text))
    if record.further_files is FurtherFiles.IMPORTS:
        names = ", ".join(f'"{path}"' for path in paths)
        main = f"imports = [{names}]\n" + _drop_imports(main)
    place = f"{directory}/main"
    host.here(place).write_text(main)
    return place


def _drop_imports(text: str) -> str:
    """The text without imports; reformatted where a pattern or a remark has a bracket, or the key is spelt oddly."""
    document, kept = _parse(text), _IMPORTS.sub("", text)
    if document is None:
        # The program reports the fault.
        return kept
    document.pop("imports", None)
    return kept if _parse(kept) == document else tomlkit.dumps(document)


def _parse(text: str) -> dict[str, Any] | None:
    try:
        return tomllib.loads(text)
    except (ValueError, RecursionError):
        return None


def _knows_flag(command: Sequence[str], flag: str) -> bool:
    """Whether a program's own help names a flag: older releases cannot judge a configuration."""
    try:
        helped = subprocess.run(command, capture_output=True, timeout=_CHECK_SECONDS, check=False)  # noqa: S603  # the running daemon's own binary
    except (OSError, subprocess.TimeoutExpired):
        return False
    return flag.encode() in helped.stdout


def _run(command: Sequence[str], timeout_seconds: float) -> str | None:
    """The output of a failed command; `None` after success."""
    try:
        done = subprocess.run(  # noqa: S603  # the program is the running daemon's own binary or the service manager
            command, capture_output=True, timeout=timeout_seconds, check=False, stdin=subprocess.DEVNULL
        )
    except subprocess.TimeoutExpired:
        return f"nothing within {timeout_seconds:g} s"
    except OSError as error:
        return f"{error.filename or command[0]}: {error.strerror}"
    if done.returncode == 0:
        return None
    said = (done.stderr or done.stdout).decode("utf-8", "replace").strip()
    return said[-SAID_LIMIT:] or f"exit status {done.returncode}"
