"""Runs the runtime's own tools: the check of a configuration before it is written, and the restart after.

Owns the command lines. A daemon is restarted by its service manager and never by a signal: containerd dies of SIGHUP.
The new configuration is checked in a directory of its own, with every import named one by one, so that the tool judges
exactly what the daemon would read.
"""

import re
import subprocess
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Final

from nodeagent.edge.container_runtime.errors import ConfigRefused, RestartFailed
from nodeagent.model.runtime import ConfigTree, RuntimeKind

_CHECK_SECONDS: Final = 20.0
_SAID_LIMIT: Final = 500
_PROGRAMS: Final = {RuntimeKind.CONTAINERD: "containerd", RuntimeKind.DOCKER: "dockerd"}
_IMPORTS: Final = re.compile(r"^imports[ \t]*=[ \t]*\[[^\]]*\][ \t]*(#[^\n]*)?\n?", re.MULTILINE)


def check_config(kind: RuntimeKind, executable: str, tree: ConfigTree) -> bool:
    """Have the runtime's own program read the configuration as it will be; False where it has no such check.

    Raises:
        ConfigRefused: it does not accept it.
    """
    # Another program may have opened the socket for the daemon, as systemd does for Docker.
    if Path(executable).name != _PROGRAMS.get(kind) or not Path(executable).exists():
        return False
    if kind is RuntimeKind.DOCKER and not _knows_flag(executable, "--validate"):
        return False
    with tempfile.TemporaryDirectory(prefix="nodeagent-check-") as directory:
        main = _write_copy(Path(directory), kind, tree)
        containerd = [executable, "--config", str(main), "config", "dump"]
        docker = [executable, "--validate", "--config-file", str(main)]
        command = containerd if kind is RuntimeKind.CONTAINERD else docker
        said = _run(command, _CHECK_SECONDS)
        if said is not None:
            raise ConfigRefused(executable, said)
    return True


def restart_runtime(command: Sequence[str], *, timeout_seconds: float, host_root: Path = Path("/")) -> None:
    """Restart it, and return when the service manager says that it has started.

    Raises:
        RestartFailed: it has not.
    """
    inside = [] if host_root == Path("/") else ["chroot", str(host_root)]
    said = _run([*inside, *command], timeout_seconds)
    if said is not None:
        raise RestartFailed(command, said)


def find_host_root(proc_root: Path = Path("/proc")) -> Path:
    """The host's file system, where this process has another one and sees the host's first process; else its own."""
    first = proc_root / "1" / "root"
    try:
        is_own = first.samefile("/")
    except OSError:
        # Not allowed to look, or hidden: then nothing of it could be run either.
        return Path("/")
    return Path("/") if is_own else first


def _write_copy(directory: Path, kind: RuntimeKind, tree: ConfigTree) -> Path:
    """The files under other names, the main one importing the others explicitly."""
    main, *others = [(file.content or b"").decode("utf-8", "replace") for file in tree.files]
    paths = [directory / f"import-{number}.toml" for number, _ in enumerate(others)]
    for path, text in zip(paths, others, strict=True):
        path.write_text(_IMPORTS.sub("", text))
    if kind is RuntimeKind.CONTAINERD:
        names = ", ".join(f'"{path}"' for path in paths)
        main = f"imports = [{names}]\n" + _IMPORTS.sub("", main)
    place = directory / "main"
    place.write_text(main)
    return place


def _knows_flag(program: str, flag: str) -> bool:
    """Whether the program's own help names a flag: Docker learned to judge a configuration in release 23."""
    try:
        helped = subprocess.run([program, "--help"], capture_output=True, timeout=_CHECK_SECONDS, check=False)  # noqa: S603  # the running daemon's own binary
    except (OSError, subprocess.TimeoutExpired):
        return False
    return flag.encode() in helped.stdout


def _run(command: Sequence[str], timeout_seconds: float) -> str | None:
    """What a failing command said; `None` when it did not fail."""
    try:
        done = subprocess.run(  # noqa: S603  # the program is the running daemon's own binary or the service manager
            command, capture_output=True, timeout=timeout_seconds, check=False, stdin=subprocess.DEVNULL
        )
    except subprocess.TimeoutExpired:
        return f"nothing within {timeout_seconds:g} s"
    except OSError as error:
        return f"{command[0]}: {error.strerror}"
    if done.returncode == 0:
        return None
    said = (done.stderr or done.stdout).decode("utf-8", "replace").strip()
    return said[-_SAID_LIMIT:] or f"exit status {done.returncode}"
