"""Podman with storage of its own, that builds `deploy/Dockerfile` as whoever keeps a registry would.

No registry is asked: the base is a Debian from debootstrap, handed over by `--build-arg BASE=`, and the libraries come
from an index on loopback, by `--build-arg PIP_INDEX_URL=`. Debian's own mirror is the only thing outside.
Containers are run by runc: crun, which Debian's Podman prefers, refuses machines with both versions of control groups.
"""

import json
import os
import subprocess
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, Final

from tests.integration.machine.emulation import Emulation
from tests.integration.machine.image import DOCKERFILE
from tests.integration.machine.roots import Enter, find_cache

BASE: Final = "localhost/base"
BUILD_SECONDS: Final = 400.0
"""Ten times what it takes on two cores that do nothing else."""


def alone(*command: str) -> tuple[str, ...]:
    """What it mounts and starts goes with it, however it ends."""
    namespaces = ("--mount", "--propagation=slave", "--pid", "--fork", "--kill-child", "--mount-proc")
    return ("unshare", *namespaces, "--", *command)


@dataclass(frozen=True, slots=True)
class Engine:
    storage: Path
    run_place: Path
    """Podman takes at most 50 characters here, because sockets lie in it."""
    enter: Enter
    isolation: str
    driver: str

    def run(self, *words: str, timeout_seconds: float = 60.0, stdin: Any = subprocess.DEVNULL) -> str:
        """One call of podman, which must succeed; what it printed."""
        places = (f"--root={self.storage}", f"--runroot={self.run_place}/run", f"--tmpdir={self.run_place}/tmp")
        how = (
            f"--storage-driver={self.driver}",
            "--runtime=runc",
            "--cgroup-manager=cgroupfs",
            "--events-backend=none",
        )
        done = subprocess.run(
            self.enter("podman", *places, *how, *words),
            stdin=stdin,
            capture_output=True,
            text=True,
            timeout=timeout_seconds,
            check=False,
            env={**os.environ, "TMPDIR": str(self.storage)},
        )
        assert done.returncode == 0, f"podman {words[0]} ended with {done.returncode}:\n{done.stdout}{done.stderr}"
        return done.stdout.strip()

    def import_base(self, debian: Path, architecture: str) -> None:
        """A root file system as the image that ours stands on; its devices are the container's, not its own."""
        command = ["tar", "--create", "--numeric-owner", "--exclude=./dev/*", "-C", str(debian), "."]
        with subprocess.Popen(command, stdout=subprocess.PIPE) as packing:
            self.run("import", f"--arch={architecture}", "-", BASE, stdin=packing.stdout, timeout_seconds=120)
        assert packing.returncode == 0

    def build(self, context: Path, reference: str, *words: str, timeout_seconds: float = BUILD_SECONDS) -> None:
        """Build it as the head of the Dockerfile says."""
        base = (f"--build-arg=BASE={BASE}", "--pull=never", "--layers=false")
        place = ("--network=host", f"--isolation={self.isolation}")
        command = ("build", "--quiet", "-f", str(DOCKERFILE), "-t", reference, *base, *place, *words, str(context))
        self.run(*command, timeout_seconds=timeout_seconds)

    def inspect(self, reference: str) -> dict[str, Any]:
        found: dict[str, Any] = json.loads(self.run("image", "inspect", reference))[0]
        return found

    def save(self, reference: str, target: Path) -> None:
        """The image as an archive that runtimes import."""
        self.run("save", "--format=oci-archive", f"--output={target}", reference, timeout_seconds=120)


@contextmanager
def open_engine(emulation: Emulation | None = None) -> Iterator[Engine]:
    """An engine whose storage goes with it. It lies in the cache, which forgets what a killed run left there."""
    with TemporaryDirectory(prefix="engine-", dir=find_cache()) as storage, TemporaryDirectory(prefix="na") as place:
        if emulation is None:
            yield Engine(Path(storage), Path(place), alone, "oci", "overlay")
        else:
            # In a user name space an overlay cannot move directories, and no control group can be made.
            yield Engine(Path(storage), Path(place), emulation.enter, "chroot", "vfs")


@contextmanager
def serve_index(wheels: Path) -> Iterator[str]:
    """The address of a package index, as pip asks for one, that has these wheels."""
    with TemporaryDirectory() as directory:
        for wheel in wheels.iterdir():
            project = Path(directory) / wheel.name.partition("-")[0].replace("_", "-").lower()
            project.mkdir(exist_ok=True)
            (project / wheel.name).symlink_to(wheel)
        with ThreadingHTTPServer(("127.0.0.1", 0), partial(_Quiet, directory=directory)) as server:
            thread = threading.Thread(target=server.serve_forever, name="package index")
            thread.start()
            try:
                yield f"http://127.0.0.1:{server.server_port}/"
            finally:
                server.shutdown()
                thread.join()


class _Quiet(SimpleHTTPRequestHandler):
    def log_message(self, *_: Any) -> None:
        """Pip tells enough."""
