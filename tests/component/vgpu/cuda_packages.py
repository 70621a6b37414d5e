"""CUDA's own headers and NVIDIA's runtime, of two versions, and its assembler: what no test could have invented.

`python -m tests.component.vgpu.cuda_packages` fetches what `requirements/cuda.txt` pins, and keeps it between runs.
"""

import hashlib
import platform
import subprocess
import sys
import tempfile
import zipfile
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from tests.support.files.cache import find_cache

PINS: Final = Path(__file__).parents[3] / "requirements/cuda.txt"
FETCH_SECONDS: Final = 300
REASON: Final = "wants CUDA's packages: python -m tests.component.vgpu.cuda_packages"


@dataclass(frozen=True, slots=True)
class Package:
    """One version of CUDA."""

    version: int
    """The newest that it knows, as CUDA counts versions."""
    folder: str
    runtime: str

    @property
    def include(self) -> Path:
        return find_place() / self.folder / "include"

    @property
    def library(self) -> Path:
        return find_place() / self.folder / "lib" / self.runtime


PACKAGES: Final = (
    Package(12090, "nvidia/cuda_runtime", "libcudart.so.12"),
    Package(13050, "nvidia/cu13", "libcudart.so.13"),
)


def find_place() -> Path:
    """Where they are kept, for these pins and this processor."""
    return find_cache() / "cuda" / f"{platform.machine()}-{hashlib.sha256(PINS.read_bytes()).hexdigest()[:16]}"


def find_assembler() -> Path:
    """`ptxas`, which translates kernels."""
    return find_place() / "nvidia/cu13/bin/ptxas"


def are_there() -> bool:
    return all(package.library.exists() for package in PACKAGES) and find_assembler().exists()


def fetch() -> None:
    """Unless that was done; pip compares each with its hash."""
    if are_there():
        return
    place = find_place()
    place.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory() as folder:
        command = [sys.executable, "-m", "pip", "download", "--quiet", "--disable-pip-version-check", "--no-deps"]
        command += ["--only-binary=:all:", "--require-hashes", "--dest", folder, "--requirement", str(PINS)]
        subprocess.run(command, check=True, timeout=FETCH_SECONDS)
        for wheel in Path(folder).glob("*.whl"):
            with zipfile.ZipFile(wheel) as archive:
                archive.extractall(place)
    # A wheel's programs lose their mode on the way.
    find_assembler().chmod(0o755)


if __name__ == "__main__":
    fetch()
