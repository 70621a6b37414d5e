"""A Docker daemon that takes `--gpus` for CDI names, with a runc for it: built from their modules into the cache.

The modules bring their own locked dependencies, and are themselves held to the sums that are written here. The daemon
is that of Docker 29; the command `docker` is this machine's own, of whatever version.
"""

import os
import shutil
import subprocess
from collections.abc import Mapping
from pathlib import Path
from typing import Final

from tests.integration.cluster.making.plan import GO_ENVIRONMENT
from tests.integration.runtimes.releases import BUILD_SECONDS, fetch_module
from tests.integration.runtimes.support import PATIENCE_SECONDS, find_programs
from tests.support.files.cache import find_cache, locked

DAEMON: Final = (
    "dockerd",
    "github.com/moby/moby/v2",
    "2.0.0-beta.24",
    "h1:sWv7EckkDJhpraR9yUjkw1XeVf39+MWd58E22PYloNA=",
)
RUNC: Final = ("runc", "github.com/opencontainers/runc", "1.4.0", "h1:FG1Hw0GBYPsNki+mBz1QOrSzbwbAcerhrAD2r097QCc=")
_PACKAGES: Final = {"dockerd": "./cmd/dockerd", "runc": "."}
_CGO: Final = {"dockerd": "0", "runc": "1"}
_FLAGS: Final = ("-trimpath", "-buildvcs=false", "-mod=readonly", "-ldflags=-s -w")
SCRIPT: Final = """
set -e
dockerd -H unix://{place}/s --data-root {place}/data --exec-root {place}/exec --pidfile {place}/pid --bridge none \\
    --iptables=false --ip6tables=false --userland-proxy=false --cdi-spec-dir {specs} > {place}/log 2>&1 &
daemon=$!
trap 'kill $daemon; wait $daemon' EXIT
for attempt in $(seq 200); do docker -H unix://{place}/s version > {place}/version 2>&1 && break; sleep 0.1; done
tar -C {root} -c . | docker -H unix://{place}/s import - probe > {place}/image
docker -H unix://{place}/s run --rm --network none --security-opt seccomp=unconfined {flags} probe /probe
"""


def find_obstacle() -> str:
    """Why there is no Docker here; empty when there can be."""
    missing = [name for name in ("go", "cc", "docker") if shutil.which(name) is None]
    if missing:
        return f"Docker's daemon is built by go and cc and asked by docker; not found here: {', '.join(missing)}"
    return "" if find_programs() is not None else "no containerd here: build the cluster's programs first"


def build(program: tuple[str, str, str, str]) -> Path:
    """One of the programs, built where it is missing."""
    name, module, version, checksum = program
    path = find_cache() / "docker" / version / name
    path.parent.mkdir(parents=True, exist_ok=True)
    with locked(path.parent / "lock"):
        if not path.exists():
            unfinished = path.with_suffix(".new")
            subprocess.run(
                ["nice", "-n", "10", "go", "build", *_FLAGS, "-o", str(unfinished), _PACKAGES[name]],
                cwd=fetch_module(module, version, checksum),
                env={**os.environ, **GO_ENVIRONMENT, "CGO_ENABLED": _CGO[name]},
                check=True,
                timeout=BUILD_SECONDS,
            )
            unfinished.rename(path)
    return path


def run_container(place: Path, root: Path, specs: Path, *flags: str, names: Path) -> tuple[int, str]:
    """Run the probe by `docker run`, with a daemon that lives as long; `names` is first on the daemon's PATH."""
    place.mkdir()
    script = SCRIPT.format(place=place, root=root, specs=specs, flags=" ".join(flags))
    done = subprocess.run(
        ["unshare", "--mount", "--propagation", "private", "bash", "-c", script],
        env=_make_environment(names),
        capture_output=True,
        text=True,
        check=False,
        timeout=PATIENCE_SECONDS,
    )
    return done.returncode, done.stdout + done.stderr


def _make_environment(names: Path) -> Mapping[str, str]:
    programs = find_programs()
    assert programs is not None
    own = (names, build(DAEMON).parent, build(RUNC).parent, programs)
    return {**os.environ, "PATH": ":".join([*map(str, own), os.environ["PATH"]])}
