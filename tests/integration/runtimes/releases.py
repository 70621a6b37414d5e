"""Releases of containerd beside the distribution's and the cluster's, built from their modules into the same cache.

A module brings its own locked dependencies; the module itself is held to the sum that is written here.
`python -m tests.integration.runtimes.releases` builds what is missing and says how far it is.
"""

import dataclasses
import json
import os
import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Final

from tests.integration.cluster.making.plan import GO_ENVIRONMENT
from tests.integration.runtimes.support import find_programs
from tests.support.files.cache import find_cache, locked

_MODULE: Final = "github.com/containerd/containerd"
BUILD_SECONDS: Final = 1800
SAID_MAX: Final = 2000


@dataclasses.dataclass(frozen=True, slots=True)
class BuiltRelease:
    """One release as the module proxy has it."""

    version: str
    module: str
    sum: str

    @property
    def program(self) -> Path:
        return find_cache() / "containerd" / self.version / "containerd"


RELEASES: Final = (
    BuiltRelease("1.7.35", _MODULE, "h1:7AU2T1qI2OdNBmKkreWZ7kASHUNFItN5Hgejd9sY938="),
    BuiltRelease("2.0.14", f"{_MODULE}/v2", "h1:f+wIN6XMP+EsDTD8eKc4aCTMxmb184p/ICs0KQYCYBg="),
    BuiltRelease("2.2.9", f"{_MODULE}/v2", "h1:ddw9THGOXhcKnHORjkKoXtazPjwtcPwmqk8AVyRpfZw="),
    BuiltRelease("2.4.2", f"{_MODULE}/v2", "h1:p6Qg+xbEz8lvwdhHDx0U469xENvp4LgGBx+E7djXkGw="),
)


class NotBuilt(Exception):
    """What Go does not fetch or build here."""

    def __init__(self, command: Sequence[str], said: str) -> None:
        super().__init__(f"{' '.join(command)}: {said.strip()[-SAID_MAX:]}")


def build(release: BuiltRelease) -> Path:
    """The program, built where it is missing."""
    program = release.program
    program.parent.mkdir(parents=True, exist_ok=True)
    with locked(find_cache() / "containerd" / "lock"):
        if not program.exists():
            _build(release, program)
    return program


def fetch_module(module: str, version: str, checksum: str) -> Path:
    """The directory with the sources of a Go module, held to its sum.

    Raises:
        NotBuilt: the module proxy does not have it.
    """
    found = json.loads(run_go(["go", "mod", "download", "-json", f"{module}@v{version}"], Path("/")))
    assert found["Sum"] == checksum, f"{module} {version} has another sum: {found['Sum']}"
    return Path(found["Dir"])


def find_cluster_program() -> Path:
    """The containerd of the cluster of these tests."""
    found = find_programs()
    assert found is not None, "no containerd here: build the cluster's programs first"
    return Path(found) / "containerd"


def _build(release: BuiltRelease, program: Path) -> None:
    source = fetch_module(release.module, release.version, release.sum)
    unfinished = program.with_suffix(".new")
    stamp = f"-s -w -X {release.module}/version.Version=v{release.version}"
    flags = ["-trimpath", "-buildvcs=false", "-mod=readonly", f"-ldflags={stamp}", "-o", str(unfinished)]
    run_go(["nice", "-n", "10", "go", "build", *flags, "./cmd/containerd"], source)
    unfinished.rename(program)


def run_go(command: Sequence[str], place: Path, environment: Mapping[str, str] = GO_ENVIRONMENT) -> str:
    """What it says.

    Raises:
        NotBuilt: it fails.
    """
    done = subprocess.run(
        command,
        cwd=place,
        env={**os.environ, **environment},
        capture_output=True,
        text=True,
        check=False,
        timeout=BUILD_SECONDS,
    )
    if done.returncode:
        raise NotBuilt(command, done.stderr)
    return done.stdout


if __name__ == "__main__":
    for number, each in enumerate(RELEASES, 1):
        print(f"containerd {each.version}, {number} of {len(RELEASES)}", file=sys.stderr, flush=True)  # noqa: T201  # progress, for people
        build(each)
