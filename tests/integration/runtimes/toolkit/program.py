"""NVIDIA's own toolkit, built from its module into the cache beside the releases of containerd.

A module brings its own locked dependencies, and the module itself is held to the sum that is written here.
`python -m tests.integration.runtimes.toolkit.program` builds the programs that these tests use.
"""

import dataclasses
import shutil
from pathlib import Path
from typing import Final

from tests.integration.runtimes.releases import fetch_module, run_go
from tests.integration.runtimes.support import run
from tests.support.files.cache import find_cache, locked

CONFIGURER: Final = "nvidia-ctk"
RUNTIME: Final = "nvidia-container-runtime"
# Its interface to NVML is C; nothing of that is called here.
ENVIRONMENT: Final = {"CGO_ENABLED": "1", "GOWORK": "off"}
FLAGS: Final = ("-trimpath", "-buildvcs=false", "-ldflags=-s -w")


@dataclasses.dataclass(frozen=True, slots=True)
class GoModule:
    """A module of programs, as the module proxy has it."""

    path: str
    version: str
    sum: str

    @property
    def programs(self) -> Path:
        """The place of what was built of it."""
        return find_cache() / self.path.rpartition("/")[2] / self.version

    def fetch(self) -> Path:
        return fetch_module(self.path, self.version, self.sum)


TOOLKIT: Final = GoModule(
    "github.com/NVIDIA/nvidia-container-toolkit", "1.20.2", "h1:ndvx+2v4c8HmRf8A5aONf1+sE32jNDZ7qnIaBEAN5i8="
)


def find_obstacle() -> str:
    """Why it cannot be had here; empty when it can."""
    missing = [name for name in ("go", "cc") if shutil.which(name) is None]
    return f"NVIDIA's toolkit is built by {' and '.join(missing)}, not found here" if missing else ""


def build(name: str = CONFIGURER, module: GoModule = TOOLKIT) -> Path:
    """One of its programs, built where it is missing.

    Raises:
        NotBuilt: Go cannot.
    """
    program = module.programs / name
    program.parent.mkdir(parents=True, exist_ok=True)
    with locked(program.parent / "lock"):
        if not program.exists():
            compile_program(module.fetch(), name, program, "-mod=readonly")
    return program


def compile_program(source: Path, name: str, program: Path, *flags: str) -> None:
    """Put the program there, whole or not at all."""
    unfinished = program.with_suffix(".new")
    command = ["nice", "-n", "10", "go", "build", *FLAGS, *flags, "-o", str(unfinished), f"./cmd/{name}"]
    run_go(command, source, ENVIRONMENT)
    unfinished.rename(program)


def configure(program: Path, main: Path, *flags: str) -> None:
    """What a person does on a node, with the directory of these files in the place of `/etc/containerd`."""
    usual = ("--runtime=containerd", f"--config={main}")
    drop_in = () if any(flag.startswith("--drop-in-config") for flag in flags) else (find_drop_in(main),)
    run(program, "runtime", "configure", *usual, *flags, *drop_in)


def find_drop_in(main: Path) -> str:
    """The flag for its default name, which it takes below `/etc/containerd` whatever the main file's place."""
    return f"--drop-in-config={main.parent}/conf.d/99-nvidia.toml"


if __name__ == "__main__":
    for each in (CONFIGURER, RUNTIME):
        build(each)
