"""Roots of containers that mean harm, made up from a seed, and real containers of them with the hook's commands."""

import json
import os
import random
import shutil
import subprocess
from dataclasses import dataclass
from pathlib import Path
from typing import Final

HOST_SETTINGS: Final = tuple(
    Path("/proc/sys/kernel") / name for name in ("core_pattern", "domainname", "hostname", "msgmax", "sem")
)
INSIDE_SETTINGS: Final = tuple(f"/proc/sys/kernel/{name}" for name in ("domainname", "hostname", "msgmax", "sem"))
COMMANDS: Final = (
    ("create-symlinks", "--link=libcuda.so.1::/usr/lib/nv/libcuda.so", "--link=../x::/usr/lib/nv/deep/y.so"),
    ("enable-cuda-compat", "--host-driver-version=535.1"),
    ("update-ldcache", "--folder=/usr/lib/nv", "--folder=/usr/lib/nv/vdpau"),
    ("disable-device-node-modification",),
    ("update-application-profile",),
)
CONFIGURATION: Final = "etc/ld.so.conf.d/00-nodeagent.conf"
FOLDERS: Final = (
    "etc",
    "etc/ld.so.conf.d",
    "etc/nvidia",
    "etc/nvidia/nvidia-application-profiles-rc.d",
    "usr",
    "usr/lib",
    "usr/lib/nv",
    "usr/lib/nv/deep",
    "usr/local/cuda/compat",
    "var/cache/ldconfig",
)
FILES: Final = (
    CONFIGURATION,
    "etc/ld.so.conf.d/00-compat-nodeagent.conf",
    "etc/ld.so.conf.d/app.conf",
    "etc/ld.so.conf",
    "etc/ld.so.cache",
    "etc/ld.so.cache~",
    "etc/ld-musl-x86_64.path",
    "etc/alpine-release",
    "usr/lib/nv/libcuda.so",
    "usr/lib/nv/deep/y.so",
    "usr/local/cuda/compat/libcuda.so.580.1",
    "etc/nvidia/nvidia-application-profiles-rc.d/10-container.conf",
    "var/cache/ldconfig/aux-cache",
)
TEXTS: Final = (
    b"/vol\n/usr/lib/nv\n",
    b"include /etc/ld.so.conf\n" * 2,
    b"include /etc/ld.so.conf.d/*\n",
    b"include /vol/*.conf\n",
    b"include /*/*/*/*/*\n",
    b"a\0b\n/vol\0\ninclude \0\n",
    b"include ../../../../../etc/ld.so.conf.d/[!x]*.c?nf\n",
    b"\xff" * 5000,
    b"include " + b"/deep" * 3000 + b"\n",
    b"/proc/sys/kernel\n/sys\n/dev\n",
    b"include /proc/kmsg /proc/self/fd/* /dev/zero\n",
)
LIBRARY: Final = "libhostile.so.1.2"


@dataclass(frozen=True, slots=True)
class Seen:
    """What is not the root's own, as it was at one time."""

    settings: tuple[str, ...]
    volume: tuple[tuple[str, int, bytes], ...]


def look(volume: Path) -> Seen:
    found = []
    for path in sorted(volume.rglob("*")):
        status = path.lstat()
        content = bytes(path.readlink()) if path.is_symlink() else path.read_bytes() if path.is_file() else b""
        found.append((str(path.relative_to(volume)), status.st_mode, content))
    return Seen(tuple(path.read_text() for path in HOST_SETTINGS), tuple(found))


def restore(before: Seen) -> None:
    """A hook that did change the host's settings must not leave them so on the machine of whoever runs the tests."""
    for path, text in zip(HOST_SETTINGS, before.settings, strict=True):
        if path.read_text() != text:
            path.write_text(text)


def make_volume(volume: Path, library: bytes) -> None:
    """A directory of the host with what the hook and ldconfig look for, and what they would leave a link to."""
    (volume / "nv/deep").mkdir(parents=True)
    for name in (
        "file",
        "ld.so.conf",
        "a.conf",
        "00-nodeagent.conf",
        "00-compat-nodeagent.conf",
        "libcuda.so",
        "ld.so.cache",
    ):
        (volume / name).write_text("/vol\n")
    (volume / LIBRARY).write_bytes(library)


class HostileRoot:
    """A bundle with a root of that seed, or with these links alone: runc makes a container of it."""

    def __init__(
        self, seed: int, program: Path, place: Path, library: bytes, links: dict[str, str] | None = None
    ) -> None:
        self.random = random.Random(seed)
        self.overlay = seed % 2 == 1
        self.place, self.root, self.volume = place, place / "lower", place / "volume"
        make_volume(self.volume, library)
        (self.root / "bin").mkdir(parents=True)
        shutil.copy(str(shutil.which("busybox")), self.root / "bin/busybox")
        for name in ("proc", "sys", "dev", "vol"):
            (self.root / name).mkdir()
        self.targets = (
            "/proc/sys/kernel/domainname",
            "/proc/sys/kernel/core_pattern",
            "/proc/sys/kernel",
            "/proc/sys/kernel/msgmax",
            "/vol",
            "/vol/file",
            "/vol/nv",
            "/vol/new",
            str(self.volume),
            f"../../../../../../..{self.volume}/file",
            "/proc/self/root/vol",
            "/proc/1/cwd",
            f"/proc/1/root{self.volume}",
            "/proc/self/fd/0",
            "/proc/self/fd/3/vol",
            "/dev/null",
            "/sys/kernel",
            "/proc/kmsg",
        )
        for name, target in (links or {}).items():
            (self.root / name).parent.mkdir(parents=True, exist_ok=True)
            (self.root / name).symlink_to(target)
        self.mounts: list[dict[str, object]] = []
        if links is None:
            for name in FOLDERS:
                self._make(name, folder=True)
            for name in FILES:
                self._make(name, folder=False)
            self.mounts = self._choose_mounts()
        self._write_config(program)

    def _is_below_folders(self, path: Path) -> bool:
        """Whether no link is on the way there, of which some lead where even root may not look."""
        above = [each for each in reversed(path.parents) if self.root in each.parents]
        return not any(each.is_symlink() or (each.exists() and not each.is_dir()) for each in above)

    def _make(self, name: str, *, folder: bool) -> None:
        path = self.root / name
        if not self._is_below_folders(path) or os.path.lexists(path) > folder:
            return
        path.parent.mkdir(parents=True, exist_ok=True)
        kind = self.random.random()
        if kind < (0.8 if folder else 0.3):
            if folder:
                path.mkdir(exist_ok=True)
        elif path.is_dir():
            return
        elif kind < (0.9 if folder else 0.55):
            path.symlink_to(self.random.choice(self.targets))
        else:
            self._make_odd(path)

    def _make_odd(self, path: Path) -> None:
        match self.random.randrange(7):
            case 0:
                os.mkfifo(path)
            case 1:
                os.mknod(path, 0o020666, os.makedev(1, self.random.choice((3, 5, 8))))
            case 2:
                (path / "deep/er/still").mkdir(parents=True, exist_ok=True)
            case 3:
                steps = [f"{path.name}.{number}" for number in range(self.random.choice((3, 60)))]
                for name, target in zip([path.name, *steps], [*steps, self.random.choice(self.targets)], strict=True):
                    path.with_name(name).symlink_to(target)
            case 4:
                path.symlink_to(path.name)
            case 5:
                path.touch()
                os.truncate(path, 1 << 40)
            case _:
                path.write_bytes(self.random.choice(TEXTS))

    def _choose_mounts(self) -> list[dict[str, object]]:
        """The volume over what the hook writes, where runc can put it there and need not make a file in it."""
        chosen: list[dict[str, object]] = []
        for name in (*FOLDERS, *FILES):
            path = self.root / name
            is_covered = any(f"/{name}".startswith(f"{mount['destination']}/") for mount in chosen)
            if self.random.random() < 0.1 and not is_covered and self._is_below_folders(path) and not path.is_symlink():
                source = self.volume if path.is_dir() else self.volume / "file"
                if path.is_dir() or path.is_file():
                    chosen.append(make_mount(f"/{name}", str(source)))
        return chosen

    def _write_config(self, program: Path) -> None:
        mounts = [
            {"destination": "/proc", "type": "proc", "source": "proc"},
            {"destination": "/sys", "type": "sysfs", "source": "sysfs"},
            {"destination": "/dev", "type": "tmpfs", "source": "tmpfs", "options": ["mode=755"]},
            make_mount("/vol", str(self.volume)),
        ]
        nodes = [{"path": f"/dev/nvidia{number}", "type": "c", "major": 1, "minor": 3} for number in (0, 2)]
        names = ("pid", "mount", "uts", "ipc", "network")
        hooks = [{"path": str(program), "args": [program.name, *command]} for command in COMMANDS]
        config = {
            "ociVersion": "1.0.2",
            "process": {
                "user": {"uid": 0, "gid": 0},
                "args": ["/bin/busybox", "cat", *INSIDE_SETTINGS],
                "cwd": "/",
            },
            "root": {"path": str(self.place / "merged" if self.overlay else self.root)},
            "hostname": "hostile",
            "mounts": [*mounts, *self.mounts],
            "hooks": {"createContainer": hooks},
            "linux": {"namespaces": [{"type": name} for name in names], "devices": nodes},
        }
        (self.place / "config.json").write_text(json.dumps(config))

    def run(self) -> subprocess.CompletedProcess[str]:
        """In a mount namespace, with an overlay of the kernel's for every other one."""
        (self.place / "merged").mkdir()
        (self.place / "upper").mkdir()
        layers = "lowerdir=lower,upperdir=upper/u,workdir=upper/w"
        overlay = f"mount -t tmpfs tmpfs upper; mkdir upper/u upper/w; mount -t overlay overlay -o {layers} merged; "
        name = f"na-{self.place.name}-{os.getpid()}"
        script = f"set -e; {overlay if self.overlay else ''}exec runc --root state run --bundle . {name}"
        return subprocess.run(
            ["unshare", "--mount", "--propagation", "private", "sh", "-c", script],
            cwd=self.place,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            check=False,
            timeout=30,
        )


def make_mount(destination: str, source: str) -> dict[str, object]:
    return {"destination": destination, "type": "bind", "source": source, "options": ["rbind", "rw"]}
