"""Fetches the pinned packages by apt, from the mirror that this machine has its own packages from.

Owns an apt of its own for each release of Debian: sources, lists, cache and status are in a scratch folder, so that
what the machine has of apt is only read. A package is checked twice: by apt against Debian's keys, and against its pin.
"""

import hashlib
import platform
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from itertools import groupby
from pathlib import Path
from typing import Final

from tests.originals.packages import DRIVERS, MACHINE, PINS, Package, find_root, list_packages, read_pins
from tests.support.files.cache import locked

KEYRING: Final = Path("/usr/share/keyrings/debian-archive-keyring.gpg")
COMPONENTS: Final = "contrib non-free non-free-firmware"
FETCH_SECONDS: Final = 1200
ADVICE: Final = "if the mirror has another version now, `python -m tests.originals pin` pins that one"


class CannotFetch(Exception):
    """The packages cannot be had, and why."""


class NoMirror(CannotFetch):
    """This machine has no apt that knows Debian: nothing is wrong, and nothing can be fetched."""


@dataclass(frozen=True, slots=True)
class Apt:
    """One release of Debian, as apt sees it through options of its own."""

    options: tuple[str, ...]
    scratch: Path

    def run(self, program: str, *arguments: str, cwd: Path | None = None) -> str:
        """The output of a program of apt.

        Raises:
            CannotFetch: it failed.
        """
        return _run(program, *self.options, *arguments, cwd=cwd or self.scratch)

    def read_candidate(self, name: str) -> dict[str, str]:
        """The fields of a package in the version that the mirror has now."""
        shown = self.run("apt-cache", "show", "--no-all-versions", name)
        return dict(line.split(": ", 1) for line in shown.splitlines() if ": " in line and not line.startswith(" "))


def find_mirror(targets: str) -> str | None:
    """The address of Debian's mirror, out of addresses and releases that `apt-get indextargets` prints."""
    for line in targets.splitlines():
        address, _, release = line.partition(" ")
        # Those of security and of updates have other packages, and a vendor's own has none of Debian's.
        if release and "-" not in release and address.rstrip("/").endswith("/debian"):
            return address
    return None


@contextmanager
def open_apt(suite: str) -> Iterator[Apt]:
    """An apt that knows the components of this release in which NVIDIA's packages are.

    Raises:
        NoMirror: this machine has no Debian mirror.
        CannotFetch: the mirror cannot be reached, or apt does not trust it.
    """
    if any(shutil.which(program) is None for program in ("apt-get", "dpkg-deb")) or not KEYRING.exists():
        raise NoMirror("there is no apt that knows Debian's keys")
    mirror = find_mirror(_run("apt-get", "indextargets", "--format", "$(REPO_URI) $(RELEASE)", "Created-By: Packages"))
    if mirror is None:
        raise NoMirror("apt knows no mirror of Debian")
    with tempfile.TemporaryDirectory(prefix="nodeagent-apt-") as directory:
        scratch = Path(directory)
        for name in ("state/lists/partial", "cache/archives/partial", "parts"):
            (scratch / name).mkdir(parents=True)
        (scratch / "status").touch()
        (scratch / "sources.list").write_text(f"deb [signed-by={KEYRING}] {mirror} {suite} {COMPONENTS}\n")
        settings = {
            "Dir::State": scratch / "state",
            "Dir::State::status": scratch / "status",
            "Dir::Cache": scratch / "cache",
            "Dir::Etc::sourcelist": scratch / "sources.list",
            "Dir::Etc::sourceparts": scratch / "parts",
            "APT::Architecture": "amd64",
            "APT::Architectures": "amd64",
            "Acquire::Languages": "none",
            # The scratch folder is for nobody else, the user that apt would download as included.
            "APT::Sandbox::User": "",
        }
        apt = Apt(tuple(word for name, value in settings.items() for word in ("-o", f"{name}={value}")), scratch)
        apt.run("apt-get", "--quiet", "--error-on=any", "update")
        yield apt


def fetch_driver(driver: str) -> Path:
    """The root directory of a driver, fetched unless that was done.

    Raises:
        CannotFetch: a package cannot be had as it is pinned.
    """
    packages = list_packages(driver)
    root = find_root(driver, packages)
    root.parent.mkdir(parents=True, exist_ok=True)
    with locked(root.parent / "lock"):
        if not root.is_dir():
            with tempfile.TemporaryDirectory(prefix="partial-", dir=root.parent) as directory:
                archives, unpacked = Path(directory) / "archives", Path(directory) / "root"
                archives.mkdir()
                unpacked.mkdir(mode=0o755)
                for suite, ones in groupby(packages, lambda package: package.suite):
                    _download(suite, tuple(ones), archives)
                for archive in sorted(archives.iterdir()):
                    _run("dpkg-deb", "--extract", str(archive), str(unpacked), cwd=unpacked)
                unpacked.rename(root)
    return root


def pin(packages: Sequence[Package]) -> tuple[Package, ...]:
    """The same packages in the versions that the mirror has now."""
    pinned: list[Package] = []
    for suite, ones in groupby(packages, lambda package: package.suite):
        with open_apt(suite) as apt:
            for package in ones:
                fields = apt.read_candidate(package.name)
                pinned.append(replace(package, version=fields["Version"], sha256=fields["SHA256"]))
    return tuple(pinned)


def write_pins() -> None:
    """Pin anew; what is written above the packages stays."""
    text = PINS.read_text()
    comments = [line for line in text.splitlines() if line.startswith("#")]
    lines = (package.render() for package in pin(read_pins(text)))
    PINS.write_text("\n".join((*comments, *lines)) + "\n")


def main(arguments: Sequence[str]) -> int:
    """Fetch all drivers, or pin them anew; the exit status."""
    if platform.machine() != MACHINE:
        sys.stdout.write(f"not fetched: pinned are packages for {MACHINE} alone\n")
        return 0
    try:
        if arguments == ["pin"]:
            write_pins()
        else:
            for driver in DRIVERS:
                sys.stdout.write(f"driver {driver}: {fetch_driver(driver)}\n")
    except NoMirror as error:
        sys.stdout.write(f"not fetched: {error}; tests that want them are skipped\n")
    except CannotFetch as error:
        sys.stderr.write(f"cannot fetch NVIDIA's own programs: {error}\n{ADVICE}\n")
        return 1
    return 0


def _download(suite: str, packages: Sequence[Package], folder: Path) -> None:
    with open_apt(suite) as apt:
        apt.run("apt-get", "--quiet", "download", *(f"{one.name}={one.version}" for one in packages), cwd=folder)
    for package in packages:
        (archive,) = folder.glob(f"{package.name}_*.deb")
        found = hashlib.sha256(archive.read_bytes()).hexdigest()
        if found != package.sha256:
            raise CannotFetch(f"{package.name} {package.version} has the hash {found}, which is not the pinned one")


def _run(*command: str, cwd: Path | None = None) -> str:
    done = subprocess.run(command, cwd=cwd, capture_output=True, text=True, check=False, timeout=FETCH_SECONDS)
    if done.returncode != 0:
        raise CannotFetch(f"{command[0]} {command[-1]}: {' '.join((done.stderr or done.stdout).split())[-600:]}")
    return done.stdout
