"""A real systemd as the first process of namespaces of its own, for what only it can show: units, scopes, reloads.

It has this machine's programs and kernel, and nothing else of it: root directory, /run, /dev and journal are made anew
in memory, its cgroups lie below one of ours, kernel settings are read-only. It is up in half a second. When it is
killed, or the test that started it, the kernel takes every process and mount of it away.

Use it with `with running_systemd(directory) as systemd`, then `systemd.write` units and `systemd.run("systemctl", …)`.
"""

import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from tests.integration.cluster import cgroups

PYTHON = Path(sys.base_prefix)
"""What to share, beside the checkout, so that the interpreter of these tests can be run in there."""
BOOT = Path(__file__).with_name("systemd_boot.sh")
PROGRAM = Path("/lib/systemd/systemd")
NEEDED = ("unshare", "nsenter", "setpriv", "pivot_root", "systemctl", "dbus-daemon")
BOOT_SECONDS = 60.0
COMMAND_SECONDS = 60.0
_POLL_SECONDS = 0.02
_GROUP_PREFIX = "nodeagent-systemd-"


def find_obstacle() -> str:
    """Why this machine cannot run one; empty when it can."""
    if os.geteuid() != 0:
        return "needs root"
    missing = [name for name in NEEDED if shutil.which(name) is None]
    if not PROGRAM.exists():
        missing.append(str(PROGRAM))
    if missing:
        return f"needs {', '.join(missing)} (packages systemd, dbus, util-linux, mount)"
    return "" if cgroups.read_hierarchies() else "needs the cgroup file system"


class SystemdNotUp(AssertionError):
    def __init__(self, log: str, seen: str) -> None:
        super().__init__(
            f"systemd is not up after {BOOT_SECONDS:g} s: {seen or 'no answer'}; it said {log or 'nothing'}"
        )


class Systemd:
    def __init__(self, pid: int) -> None:
        self.pid = pid
        """Its first process, as this machine numbers it."""

    def path(self, inside: str) -> Path:
        """A file of its root directory, as a test can open it (symbolic links in there must be relative)."""
        return Path(f"/proc/{self.pid}/root") / inside.lstrip("/")

    def write(self, inside: str, text: str) -> None:
        """Put a file there, such as a unit into /etc/systemd/system."""
        place = self.path(inside)
        place.parent.mkdir(parents=True, exist_ok=True)
        place.write_text(text)

    def enter(self, *command: str) -> tuple[str, ...]:
        """The command line that runs a command in there."""
        return ("nsenter", f"--target={self.pid}", "--all", "--", *command)

    def call(self, *command: str) -> subprocess.CompletedProcess[str]:
        """Run a command in there, whatever comes of it."""
        environment = {"PATH": "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin", "LANG": "C.UTF-8"}
        return subprocess.run(
            self.enter(*command),
            capture_output=True,
            text=True,
            check=False,
            timeout=COMMAND_SECONDS,
            env=environment,
            stdin=subprocess.DEVNULL,
        )

    def run(self, *command: str) -> str:
        """The output of a command in there, which must succeed."""
        done = self.call(*command)
        assert done.returncode == 0, f"{' '.join(command)}: {done.stdout}{done.stderr}\n{self.read_journal()}"
        return done.stdout

    def read_journal(self, unit: str = "") -> str:
        """The end of what systemd and its units, or one unit, logged."""
        only = [f"--unit={unit}"] if unit else []
        return self.call("journalctl", "--no-pager", "--output=short-monotonic", "--lines=60", *only).stdout


@contextmanager
def running_systemd(directory: Path, *, share: Sequence[Path] = (), base: Path | None = None) -> Iterator[Systemd]:
    """A systemd that lives as long as the block.

    Args:
        directory: an empty directory, the root of the new file system.
        share: directories of this machine that are to be seen in there too, writable and under their own names.
        base: a whole system, with systemd, to use in place of this machine's programs; nothing in it is changed, and
            its network is its own loopback.
    """
    group = f"{_GROUP_PREFIX}{os.getpid()}"
    hierarchies = cgroups.read_hierarchies()
    _remove_stale_groups(hierarchies)
    cgroups.create(group, hierarchies)
    log = directory.with_name(f"{directory.name}.log")
    with log.open("wb") as output:
        process = subprocess.Popen(
            _render_command(group, hierarchies, directory, share, network=base is not None),
            env={**os.environ, "BASE": str(base or "")},
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=output,
            start_new_session=True,
        )
    try:
        yield _wait_up(process, log)
    finally:
        _kill(process)
        left = cgroups.remove(group, hierarchies, timeout_seconds=10.0)
        assert not left, f"cgroups that cannot be removed: {left}"


def _kill(process: subprocess.Popen[bytes]) -> None:
    """End the first process; the kernel ends all others, and `unshare` returns when they are gone."""
    for pid in _children(process.pid):
        os.kill(pid, signal.SIGKILL)
    try:
        process.wait(COMMAND_SECONDS)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()


def _render_command(
    group: str, hierarchies: Sequence[Path], directory: Path, share: Sequence[Path], *, network: bool
) -> tuple[str, ...]:
    join = "; ".join(f'echo $$ >"{hierarchy}/{group}/cgroup.procs"' for hierarchy in hierarchies)
    # If the test is killed, so is `unshare`, and with it the first process of the namespace, and so everything in it.
    flags = "--pid --mount --cgroup --uts --ipc --fork --kill-child --propagation private"
    if network:
        flags += " --net"
    script = f'{join}; exec setpriv --pdeathsig KILL unshare {flags} sh "$@"'
    return ("sh", "-c", script, "sh", str(BOOT), str(directory), *map(str, share))


def _wait_up(process: subprocess.Popen[bytes], log: Path) -> Systemd:
    deadline = time.monotonic() + BOOT_SECONDS
    seen = ""
    while time.monotonic() < deadline and process.poll() is None:
        for pid in _children(process.pid):
            systemd = Systemd(pid)
            if _is_booted(pid):
                seen = systemd.call("systemctl", "is-system-running").stdout.strip()
            if seen in {"running", "degraded"}:
                return systemd
        time.sleep(_POLL_SECONDS)
    raise SystemdNotUp(log.read_text(errors="replace"), seen)


def _is_booted(pid: int) -> bool:
    """Whether it has become systemd and listens; before that, entering it would find the machine's own systemd."""
    try:
        return (
            Path(f"/proc/{pid}/comm").read_text() == "systemd\n"
            and Path(f"/proc/{pid}/root/run/systemd/private").is_socket()
        )
    except OSError:
        return False


def _children(pid: int) -> tuple[int, ...]:
    try:
        return tuple(map(int, Path(f"/proc/{pid}/task/{pid}/children").read_text().split()))
    except OSError:
        return ()


def _remove_stale_groups(hierarchies: Sequence[Path]) -> None:
    """What a killed test run has left; its processes are gone."""
    for name in {path.name for hierarchy in hierarchies for path in hierarchy.glob(f"{_GROUP_PREFIX}*")}:
        if not Path("/proc", name.removeprefix(_GROUP_PREFIX)).exists():
            cgroups.remove(name, hierarchies, timeout_seconds=1.0)
