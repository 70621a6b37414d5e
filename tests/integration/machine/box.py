"""A root file system one can work in: its own mounts and processes, over a base that is never written to.

Everything that happens in it lies in one folder; when its first process ends, the kernel ends all others and takes
every mount away, however it ended.
"""

import os
import shlex
import subprocess
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Final

START_SECONDS: Final = 20.0
PATH: Final = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"

_DEVICES: Final = ("null", "zero", "full", "random", "urandom", "tty")
_VOLATILE: Final = ("proc", "dev", "sys")


class CommandRefused(Exception):
    """A command in the box ended with an error."""

    def __init__(self, command: Sequence[str], done: subprocess.CompletedProcess[str]) -> None:
        self.done = done
        super().__init__(f"{shlex.join(command)} ended with {done.returncode}:\n{done.stdout}{done.stderr}")


@dataclass(frozen=True, slots=True)
class Box:
    """One open root."""

    pid: int
    """Its first process."""

    @property
    def root(self) -> Path:
        """Its / as seen from outside."""
        return Path(f"/proc/{self.pid}/root")

    def enter(self, *command: str) -> tuple[str, ...]:
        """The command line that runs `command` in there."""
        return ("nsenter", f"--target={self.pid}", "--mount", "--pid", "--root", "--wd", "--", *command)

    def run(self, *command: str, environment: Mapping[str, str] | None = None, timeout_seconds: float = 300) -> str:
        """Run to the end; return standard output.

        Raises:
            CommandRefused: it ended with an error.
        """
        done = subprocess.run(
            self.enter(*command),
            env={"PATH": PATH, "HOME": "/root", "LC_ALL": "C.UTF-8", **(environment or {})},
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=timeout_seconds,
            check=False,
        )
        if done.returncode:
            raise CommandRefused(command, done)
        return done.stdout

    def shell(self, script: str, *, environment: Mapping[str, str] | None = None) -> str:
        """Run a script that ends at its first error."""
        return self.run("sh", "-ec", script, environment=environment)


def list_files(root: Path, *, without: Sequence[str] = ()) -> dict[str, str]:
    """Every file below a root, with what would tell that it was changed; kernel file systems are left out."""
    hidden = {*_VOLATILE, *(path.strip("/") for path in without)}
    found: dict[str, str] = {}
    for directory, folders, files in os.walk(root):
        place = Path(directory).relative_to(root)
        folders[:] = [name for name in folders if str(place / name) not in hidden]
        for name in (*folders, *files):
            found[f"/{place / name}"] = describe(Path(directory) / name)
    return found


def describe(path: Path) -> str:
    """Kind, rights, owner, and for files size and time, for links where they lead."""
    status = path.lstat()
    text = f"{status.st_mode:o} {status.st_uid}:{status.st_gid}"
    if path.is_symlink():
        return f"{text} -> {path.readlink()}"
    return f"{text} {status.st_size} {status.st_mtime_ns}" if path.is_file() else text


def render_mounts(layers: Sequence[Path], folder: Path, binds: Mapping[Path, str]) -> str:
    """The script of the first process; `layers` from the lowest to the highest."""
    root = folder / "root"
    lower = ":".join(str(layer) for layer in reversed(layers))
    lines = [
        f"mount -t overlay overlay -o lowerdir={lower},upperdir={folder}/upper,workdir={folder}/work {root}",
        f"mount -t proc proc {root}/proc",
        f"mount --bind /sys {root}/sys",
        f"mount -t tmpfs -o mode=755 tmpfs {root}/dev",
        f"mkdir -m 1777 {root}/dev/shm",
        f"ln -s /proc/self/fd {root}/dev/fd",
        *(f"touch {root}/dev/{name} && mount --bind /dev/{name} {root}/dev/{name}" for name in _DEVICES),
        f"mount -t tmpfs -o mode=755 tmpfs {root}/run",
        f"mkdir {root}/run/lock",
        f"mount -t tmpfs -o mode=1777 tmpfs {root}/tmp",
        f"mount --bind /etc/resolv.conf {root}/etc/resolv.conf",
        *(f"mkdir -p {root}/tmp{place} && mount --bind {path} {root}/tmp{place}" for path, place in binds.items()),
        "echo ready",
        f"exec chroot {root} sh -c 'trap exit TERM; while :; do sleep 1000000 & wait; done' <&- >&- 2>&-",
    ]
    return "\n".join(("set -e", *lines))


@contextmanager
def open_box(layers: Sequence[Path], folder: Path, binds: Mapping[Path, str] | None = None) -> Iterator[Box]:
    """A root of these layers; what is written goes to `folder/upper`, and `binds` are seen below /tmp."""
    for name in ("upper", "work", "root"):
        (folder / name).mkdir(parents=True, exist_ok=True)
    (folder / "upper").chmod(0o755)
    script = render_mounts(layers, folder, binds or {})
    # if the test is killed, so is `unshare`, and with it the first process of the namespace, and so everything in it
    namespaces = (
        "setpriv",
        "--pdeathsig",
        "KILL",
        "unshare",
        "--mount",
        "--pid",
        "--fork",
        "--kill-child",
        "--propagation=private",
    )
    process = subprocess.Popen((*namespaces, "sh", "-c", script), stdout=subprocess.PIPE, text=True)
    assert process.stdout is not None
    try:
        with process.stdout as output:
            told = output.readline()
        if told != "ready\n":
            raise CommandRefused(("sh", "-c", script), subprocess.CompletedProcess((), process.wait(), told, ""))
        yield Box(_find_child(process.pid))
    finally:
        process.kill()
        process.wait()


def _find_child(pid: int) -> int:
    """The first process of the new namespace, once it has its new root."""
    deadline = time.monotonic() + START_SECONDS
    while time.monotonic() < deadline:
        children = Path(f"/proc/{pid}/task/{pid}/children").read_text().split()
        if children and str(Path(f"/proc/{children[0]}/root").readlink()) != "/":
            return int(children[0])
        time.sleep(0.01)
    raise TimeoutError(f"process {pid} opened no root")
