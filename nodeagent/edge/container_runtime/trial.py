"""Starts the node's own containerd beside the serving containerd, and asks for the trial's result.

Owns the scratch directory and the life of the trial process: bounded twice, by the agent and by `timeout`, also when
the agent is killed meanwhile; and first to be killed where memory is short.
Refuses to judge the answer, and to make files harmless: files are started as handed in.
"""

import asyncio
import os
import re
import signal
import subprocess
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Final

from nodeagent.edge.container_runtime.cri import CriAnswer, ask_runtime
from nodeagent.edge.container_runtime.errors import RuntimeSilent
from nodeagent.edge.container_runtime.tools import enter_root, make_directory
from nodeagent.edge.host.errors import FileNotWritten
from nodeagent.edge.host.machine.host_paths import HostPaths
from nodeagent.model.runtime import SCRATCH, ConfigTree, TrialAnswer

TRIAL_SECONDS: Final = 10.0
_END_SECONDS: Final = 2.0
_POLL_SECONDS: Final = 0.05
_ASK_SECONDS: Final = 2.0
_SAID_LIMIT: Final = 500
_LONGEST_SOCKET: Final = 100
"""The kernel allows 107 bytes for a socket's address; containerd appends `.ttrpc` to its own socket's."""
_BEGIN: Final = 'echo 1000 2>/dev/null >/proc/self/oom_score_adj; exec timeout -s KILL "$@"'
_OWN_PROC: Final = 'mount -t proc proc "$0/proc"; exec "$@"'
"""Mounts /proc of the agent's process namespace in the host's root: the daemon looks itself up in /proc."""
_ERROR: Final = re.compile(r'error="((?:[^"\\]|\\.)*)"')
_NO_CRI: Final = "unimplemented"
"""The answer to CRI questions of a daemon started without CRI."""


def try_out(
    executable: str, main: str, tree: ConfigTree, host: HostPaths, *, seconds: float = TRIAL_SECONDS
) -> TrialAnswer:
    """Start containerd with the files, ask, end the daemon; the first file is the main file, each path a plain name."""
    if os.geteuid() != 0:
        return TrialAnswer(obstacle="only root can start containerd")
    if Path(executable).name != "containerd":
        return TrialAnswer(obstacle=f"the program behind its socket is {executable or 'not known'}, not containerd")
    if not host.here(executable).exists():
        return TrialAnswer(obstacle=f"{executable} is not there")
    try:
        with make_directory(host, main) as directory:
            return _try_in(directory, executable, tree, host, seconds)
    except (FileNotWritten, OSError) as error:
        return TrialAnswer(obstacle=f"{error}")


def _try_in(directory: str, executable: str, tree: ConfigTree, host: HostPaths, seconds: float) -> TrialAnswer:
    place = host.here(directory)
    socket = place / "grpc"
    if len(os.fsencode(socket)) > _LONGEST_SOCKET:
        return TrialAnswer(obstacle=f"{directory} is too long a name for a socket")
    (place / "cni").mkdir()
    for file in tree.files:
        content = (file.content or b"").replace(SCRATCH.encode(), directory.encode())
        (place / file.path).write_bytes(content)
    flags = [part for name in ("root", "state") for part in (f"--{name}", f"{directory}/{name}")]
    main = f"{directory}/{tree.files[0].path}"
    daemon = enter_root(host.root, [executable, "--config", main, *flags, "--address", f"{directory}/grpc"])
    if not host.is_own:
        daemon = ["unshare", "--mount", "--propagation", "private", "sh", "-c", _OWN_PROC, str(host.root), *daemon]
    # Twice the time, so that the agent, which knows the reason, ends the trial before `timeout` does.
    command = ["sh", "-c", _BEGIN, "sh", f"{2 * seconds:g}", *daemon]
    with (place / "log").open("w+b") as log, _running(command, directory, log.fileno()) as process:
        answer = _wait_answer(process, socket, seconds)
        log.seek(0)
        return _describe(answer, log.read().decode("utf-8", "replace"), seconds)


@contextmanager
def _running(command: Sequence[str], directory: str, log: int) -> Iterator[subprocess.Popen[bytes]]:
    """A process in a group of its own; afterwards nothing of the group is left."""
    process = subprocess.Popen(  # noqa: S603  # the running daemon's own binary, with files of our making
        command,
        stdin=subprocess.DEVNULL,
        stdout=log,
        stderr=log,
        start_new_session=True,
        # Nothing of the agent's own environment, such as systemd's notify socket.
        env={"PATH": os.environ.get("PATH", os.defpath), "TMPDIR": directory, "GOMAXPROCS": "1"},
    )
    try:
        yield process
    finally:
        for number in (signal.SIGTERM, signal.SIGKILL):
            _signal_group(process.pid, number)
            try:
                process.wait(_END_SECONDS)
            except subprocess.TimeoutExpired:
                continue
            break
        _signal_group(process.pid, signal.SIGKILL)


def _signal_group(group: int, number: signal.Signals) -> None:
    try:
        os.killpg(group, number)
    except ProcessLookupError:
        # The whole group has ended already.
        return


def _wait_answer(process: subprocess.Popen[bytes], socket: Path, seconds: float) -> CriAnswer | str | None:
    """The CRI answer, or why CRI will not come up; `None` where neither is known in time."""
    deadline = time.monotonic() + seconds
    while time.monotonic() < deadline:
        if process.poll() is not None:
            return "containerd ends at once"
        if socket.exists():
            try:
                return asyncio.run(ask_runtime(str(socket), timeout_seconds=_ASK_SECONDS))
            except RuntimeSilent as error:
                if error.reason.startswith(_NO_CRI):
                    return "containerd starts without CRI"
        time.sleep(_POLL_SECONDS)
    return None


def _describe(answer: CriAnswer | str | None, log: str, seconds: float) -> TrialAnswer:
    if answer is None:
        told = f"a containerd that was started on the side did not answer within {seconds:g} s"
        return TrialAnswer(obstacle=f"{told}: {find_reason(log)}")
    if isinstance(answer, str):
        return TrialAnswer(said=f"{answer}: {find_reason(log)}")
    said = "" if answer.is_ready else "its condition RuntimeReady is not true"
    return TrialAnswer(
        is_ready=bool(answer.is_ready), said=said, handlers=answer.handlers, cdi_enabled=answer.cdi_enabled
    )


def find_reason(log: str) -> str:
    """The daemon's own words on a missing CRI: the error of the CRI plugin, else the last line of the log."""
    lines = [line for line in log.splitlines() if line.strip()]
    failed = [line for line in lines if "failed to load plugin" in line and "cri" in line]
    found = [match[1] for line in failed if (match := _ERROR.search(line))]
    words = found[0] if found else lines[-1] if lines else "it says nothing"
    return words.replace('\\"', '"')[:_SAID_LIMIT]
