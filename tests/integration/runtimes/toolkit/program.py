"""NVIDIA's own toolkit, built from its module into the cache beside the releases of containerd.

Its module brings its own locked dependencies, and the module itself is held to the sum that is written here.
`python -m tests.integration.runtimes.toolkit.program` builds the programs that these tests use.
"""

import json
import os
import shutil
import subprocess
from pathlib import Path
from typing import Final

from tests.integration.runtimes.releases import BUILD_SECONDS
from tests.integration.runtimes.support import run
from tests.support.files.cache import find_cache, locked

MODULE: Final = "github.com/NVIDIA/nvidia-container-toolkit"
VERSION: Final = "1.20.2"
SUM: Final = "h1:ndvx+2v4c8HmRf8A5aONf1+sE32jNDZ7qnIaBEAN5i8="
CONFIGURER: Final = "nvidia-ctk"
RUNTIME: Final = "nvidia-container-runtime"
# Its interface to NVML is C; nothing of that is called here.
ENVIRONMENT: Final = {"CGO_ENABLED": "1", "GOWORK": "off"}
FLAGS: Final = ("-trimpath", "-buildvcs=false", "-mod=readonly", "-ldflags=-s -w")


def find_obstacle() -> str:
    """Why it cannot be had here; empty when it can."""
    missing = [name for name in ("go", "cc") if shutil.which(name) is None]
    return f"NVIDIA's toolkit is built by {' and '.join(missing)}, not found here" if missing else ""


def build(name: str = CONFIGURER) -> Path:
    """One of its programs, built where it is missing."""
    program = find_cache() / "nvidia-container-toolkit" / VERSION / name
    program.parent.mkdir(parents=True, exist_ok=True)
    with locked(program.parent / "lock"):
        if not program.exists():
            told = json.loads(_go("mod", "download", "-json", f"{MODULE}@v{VERSION}"))
            assert told["Sum"] == SUM, f"{MODULE} {VERSION} has another sum: {told['Sum']}"
            unfinished = program.with_suffix(".new")
            _go("build", *FLAGS, "-o", str(unfinished), f"./cmd/{name}", place=Path(told["Dir"]))
            unfinished.rename(program)
    return program


def configure(program: Path, main: Path, *flags: str) -> None:
    """What a person does on a node, with the directory of these files in the place of `/etc/containerd`."""
    usual = ("--runtime=containerd", f"--config={main}")
    drop_in = () if any(flag.startswith("--drop-in-config") for flag in flags) else (find_drop_in(main),)
    run(program, "runtime", "configure", *usual, *flags, *drop_in)


def find_drop_in(main: Path) -> str:
    """The flag for its default name, which it takes below `/etc/containerd` whatever the main file's place."""
    return f"--drop-in-config={main.parent}/conf.d/99-nvidia.toml"


def _go(*words: str, place: Path = Path("/")) -> str:
    done = subprocess.run(
        ["nice", "-n", "10", "go", *words],
        cwd=place,
        env={**os.environ, **ENVIRONMENT},
        capture_output=True,
        text=True,
        check=False,
        timeout=BUILD_SECONDS,
    )
    assert done.returncode == 0, f"go {' '.join(words)}: {done.stderr[-2000:]}"
    return done.stdout


if __name__ == "__main__":
    for each in (CONFIGURER, RUNTIME):
        build(each)
