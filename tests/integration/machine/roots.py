"""Root file systems and what is laid over them, made once and kept outside of the checkout.

Owns the cache: one folder per key, complete or called `<key>.partial`. What has not been used for a week is deleted.
"""

import fcntl
import hashlib
import os
import shutil
import subprocess
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Final

from tests.integration.cluster.making.build import find_cache as find_cluster_cache

SUITE: Final = "bookworm"
KEPT_SECONDS: Final = 7 * 24 * 3600
ROOT: Final = Path(__file__).resolve().parents[3]
REQUIREMENTS: Final = ROOT / "requirements/runtime.txt"

Enter = Callable[..., tuple[str, ...]]
"""Turns a command into the command line that runs it somewhere else."""


def find_cache() -> Path:
    """Where roots and layers are kept, beside the cluster's programs."""
    return find_cluster_cache().with_name("roots")


def digest(*parts: str | bytes) -> str:
    whole = hashlib.sha256()
    for part in parts:
        content = part.encode() if isinstance(part, str) else part
        whole.update(len(content).to_bytes(8, "big") + content)
    return whole.hexdigest()[:16]


def keep(key: str, make: Callable[[Path], None]) -> Path:
    """The folder of this key, made by `make` unless it is there; half-made ones are made anew."""
    cache = find_cache()
    folder = cache / key
    with _locked(cache):
        _prune(cache)
        if not folder.is_dir():
            partial = cache / f"{key}.partial"
            shutil.rmtree(partial, ignore_errors=True)
            partial.mkdir()
            make(partial)
            partial.rename(folder)
        os.utime(cache / key)
    return folder


def make_debian(include: Sequence[str] = ()) -> Path:
    """A minimal Debian with these packages: half a minute the first time."""

    def debootstrap(folder: Path) -> None:
        packages = [f"--include={','.join(include)}"] if include else []
        command = ["debootstrap", "--variant=minbase", *packages, SUITE, str(folder)]
        _debootstrap(command, folder)

    return keep(f"debian-{SUITE}-{digest(*include)}", debootstrap)


def make_foreign_debian(architecture: str, enter: Enter) -> Path:
    """The same minimal Debian for another processor, made where its programs run: a few minutes the first time."""

    def debootstrap(folder: Path) -> None:
        command = ["debootstrap", "--variant=minbase", f"--arch={architecture}", SUITE, str(folder)]
        # It asks for device nodes, which a user name space cannot make, unless it believes to be in such a container.
        _debootstrap(enter("env", "container=lxc", *command), folder)

    return keep(f"debian-{SUITE}-{architecture}", debootstrap)


def _debootstrap(command: Sequence[str], folder: Path) -> None:
    subprocess.run(command, check=True, stdout=subprocess.DEVNULL)
    for archive in (folder / "var/cache/apt/archives").glob("*.deb"):
        archive.unlink()


def make_wheelhouse() -> Path:
    """The pinned libraries as wheels, their hashes checked, so that installing needs no network."""
    return keep(f"wheels-{_digest_pins()}", _download_wheels)


def make_foreign_wheelhouse(machine: str) -> Path:
    platforms = [f"--platform=manylinux{release}_{machine}" for release in ("_2_28", "_2_17", "2014")]
    return keep(f"{machine}-wheels-{_digest_pins()}", lambda folder: _download_wheels(folder, *platforms))


def _digest_pins() -> str:
    return digest(REQUIREMENTS.read_bytes())


def _download_wheels(folder: Path, *words: str) -> None:
    command = [str(ROOT / ".venv/bin/python"), "-m", "pip", "download", "--quiet", "--disable-pip-version-check"]
    command += ["--require-hashes", "--no-deps", "--only-binary=:all:", "--python-version=3.11", *words]
    subprocess.run([*command, "-r", str(REQUIREMENTS), "-d", str(folder)], check=True)


@contextmanager
def _locked(cache: Path) -> Iterator[None]:
    cache.mkdir(parents=True, exist_ok=True)
    with (cache / "lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield


def _prune(cache: Path) -> None:
    for folder in cache.iterdir():
        if folder.is_dir() and folder.stat().st_mtime < time.time() - KEPT_SECONDS:
            shutil.rmtree(folder)
