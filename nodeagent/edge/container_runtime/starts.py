"""Restarts a runtime by the service manager, and measures starts.

Owns the command's life: the wait needs no thread, and cancelling the wait ends the command; the service manager then
goes on alone. A daemon is never restarted by a signal: containerd dies of SIGHUP.
"""

import os
import re
import subprocess
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Final

from nodeagent.core.log.audit import noting
from nodeagent.edge.container_runtime.errors import RestartFailed
from nodeagent.edge.container_runtime.tools import SAID_LIMIT, enter_root
from nodeagent.edge.host.files.pseudo_file import list_processes, read_attribute, read_raw_attribute
from nodeagent.edge.host.processes.program_end import kill_program, memory_file, wait_process
from nodeagent.model.runtime import DaemonProcess

_END_SECONDS: Final = 2.0
_SHOW_SECONDS: Final = 5.0
_LEFT_REST: Final = "InactiveExitTimestampMonotonic"
_WAS_THERE: Final = "ActiveEnterTimestampMonotonic"
_MICROSECONDS: Final = 1e6
_SERVICE: Final = re.compile(r"[A-Za-z0-9:_.@\\][A-Za-z0-9:_.@\\-]*\.service")
_SUBGROUP: Final = re.compile(r"[^:]*")
"""A control group of a daemon's own; names of containers' groups below a service have colons."""


async def restart_runtime(command: Sequence[str], host_root: Path = Path("/")) -> None:
    """Restart the runtime, and return when the service manager reports the start."""
    with noting("service", " ".join(command), "restart the container runtime"), memory_file("restart") as said:
        try:
            process = subprocess.Popen(  # noqa: ASYNC220, S603  # starting takes a millisecond; it is the service manager
                enter_root(host_root, command),
                stdin=subprocess.DEVNULL,
                stdout=said,
                stderr=said,
                start_new_session=True,
            )
        except OSError as error:
            raise RestartFailed(command, f"{error.filename or command[0]}: {error.strerror}") from error
        try:
            await wait_process(process.pid)
        finally:
            status = process.poll()
            if status is None:
                await kill_program(process, _END_SECONDS)
        if status != 0:
            words = os.pread(said, os.fstat(said).st_size, 0).decode("utf-8", "replace").strip()
            raise RestartFailed(command, words[-SAID_LIMIT:] or f"exit status {status}")


def measure_start(command: Sequence[str], timeout_seconds: float, host_root: Path = Path("/")) -> float:
    """How long the slowest unit of the command took to start the last time, by systemd; zero where unknown."""
    units = [word for word in command if word.endswith(".service")]
    if not units:
        return 0.0
    show = ["systemctl", "show", f"--property={_LEFT_REST}", f"--property={_WAS_THERE}", *units]
    try:
        shown = subprocess.run(  # noqa: S603  # the service manager of the node
            enter_root(host_root, show),
            capture_output=True,
            timeout=min(timeout_seconds, _SHOW_SECONDS),
            check=False,
            stdin=subprocess.DEVNULL,
        )
    except (OSError, subprocess.TimeoutExpired):
        return 0.0
    return parse_start_seconds(shown.stdout.decode("utf-8", "replace"))


def parse_start_seconds(text: str) -> float:
    """The longest start with both ends in the output of `systemctl show`."""
    longest = 0.0
    for block in text.split("\n\n"):
        told = dict(line.split("=", 1) for line in block.splitlines() if "=" in line)
        began, ended = (
            int(told.get(name, "")) if told.get(name, "").isdecimal() else 0 for name in (_LEFT_REST, _WAS_THERE)
        )
        if began and ended > began:
            longest = max(longest, (ended - began) / _MICROSECONDS)
    return longest


def parse_unit(text: str) -> str:
    """The service of a process by /proc/PID/cgroup, by systemd's own rules; empty for a process outside services.

    Groups below a pod, a container, a session or a user's service manager are no service of the host.
    """
    groups = dict(line.split(":", 2)[1:] for line in text.splitlines() if line.count(":") > 1)
    # Where both versions of control groups are mounted, systemd uses the hierarchy of its own name.
    path = groups.get("name=systemd") or groups.get("", "")
    parts = [part for part in path.split("/") if part]
    # The path of a process outside our control group namespace begins with `..`.
    while parts and (parts[0] == ".." or parts[0].endswith(".slice")):
        if parts[0] == "user.slice":
            return ""
        parts.pop(0)
    unit, subgroups = "".join(parts[:1]).removeprefix("_"), parts[1:]
    is_service = _SERVICE.fullmatch(unit) and not unit.startswith("user@")
    return unit if is_service and len(subgroups) < 2 and all(map(_SUBGROUP.fullmatch, subgroups)) else ""


def list_daemons(program: str, proc_root: Path = Path("/proc")) -> tuple[DaemonProcess, ...]:
    """The processes of the program, the oldest first."""
    found = (_read_process(each) for each in list_processes(proc_root) if read_attribute(each / "comm") == program)
    return tuple(sorted(filter(None, found), key=lambda each: -each.age_seconds))


def _read_process(directory: Path) -> DaemonProcess | None:
    # The name in front may have blanks and brackets.
    fields = read_raw_attribute(directory / "stat").rpartition(b") ")[2].split()
    try:
        user, system, started = (int(fields[number]) for number in (11, 12, 19))
    except (IndexError, ValueError):
        # The process has ended meanwhile.
        return None
    ticks = os.sysconf("SC_CLK_TCK")
    return DaemonProcess(
        pid=int(directory.name),
        age_seconds=time.clock_gettime(time.CLOCK_BOOTTIME) - started / ticks,
        cpu_seconds=(user + system) / ticks,
        moved_bytes=_read_moved(directory),
    )


def _read_moved(directory: Path) -> int:
    lines = read_raw_attribute(directory / "io").splitlines()
    told = dict(line.split(b": ", 1) for line in lines if b": " in line)
    return sum(int(told[name]) for name in (b"read_bytes", b"write_bytes") if told.get(name, b"").isdigit())
