"""NVML's own header in four versions: `python -m tests.contract.nvml.headers` fetches them as they are pinned.

They are kept in the cache between runs. pip compares each package with its hash. The header is the same for all
processors, so it is taken from the package for x86-64, which every version has.
"""

import hashlib
import re
import subprocess
import sys
import tempfile
import zipfile
from functools import cache
from pathlib import Path
from typing import Final

from tests.support.files.cache import find_cache, locked

PINS: Final = Path(__file__).parents[3] / "requirements/nvml.txt"
FETCH_SECONDS: Final = 300
REASON: Final = "wants NVML's headers: python -m tests.contract.nvml.headers"


def read_pins() -> dict[str, str]:
    """The pins by version, each with its hashes."""
    joined = PINS.read_text().replace("\\\n", " ")
    lines = [line for line in joined.splitlines() if "==" in line and not line.startswith("#")]
    return {line.partition("==")[2].split()[0]: line for line in lines}


VERSIONS: Final = tuple(read_pins())


def find_folder() -> Path:
    return find_cache() / "nvml" / hashlib.sha256(PINS.read_bytes()).hexdigest()[:16]


def find_header(version: str) -> Path:
    return find_folder() / version / "nvml.h"


def are_there() -> bool:
    return all(find_header(version).exists() for version in VERSIONS)


@cache
def list_types(version: str) -> frozenset[str]:
    """The names that this header gives to types."""
    text = find_header(version).read_text(errors="replace")
    names = re.findall(r"^\}\s*([\w, ]+);|^typedef\s[^;{}]*?\b(\w+);", text, re.MULTILINE)
    return frozenset(name.strip() for first, second in names for name in (first or second).split(","))


def fetch() -> None:
    """Those that are missing; versions of one package exclude each other for pip, so each is asked for alone."""
    find_folder().mkdir(parents=True, exist_ok=True)
    with locked(find_folder() / "lock"), tempfile.TemporaryDirectory() as name:
        for version, pin in read_pins().items():
            if not find_header(version).exists():
                _fetch_one(version, pin, Path(name) / version)


def _fetch_one(version: str, pin: str, scratch: Path) -> None:
    scratch.mkdir()
    (scratch / "pin.txt").write_text(f"{pin}\n")
    command = [sys.executable, "-m", "pip", "download", "--quiet", "--disable-pip-version-check", "--no-deps"]
    command += ["--only-binary=:all:", "--platform", "manylinux1_x86_64", "--platform", "manylinux2014_x86_64"]
    command += ["--require-hashes", "--dest", str(scratch), "--requirement", f"{scratch}/pin.txt"]
    subprocess.run(command, check=True, timeout=FETCH_SECONDS)
    (wheel,) = scratch.glob("*.whl")
    with zipfile.ZipFile(wheel) as archive:
        (member,) = [one for one in archive.namelist() if one.endswith("/nvml.h")]
        text = archive.read(member)
    target = find_header(version)
    target.parent.mkdir(exist_ok=True)
    part = target.with_suffix(".new")
    part.write_bytes(text)
    part.replace(target)


if __name__ == "__main__":
    fetch()
