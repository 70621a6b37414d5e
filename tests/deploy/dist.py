"""What is handed out: sdist and wheel that come out the same twice, a bill of materials, licences that allow it.

`python -m tests.deploy.dist` writes all of it to dist/. The time in the archives is that of the last commit, so that
whoever builds the same commit gets the same bytes.
"""

import filecmp
import json
import os
import re
import shutil
import subprocess
import sys
import tempfile
import zipfile
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from importlib import metadata
from pathlib import Path
from typing import Any, Final

from nodeagent import __version__
from tests.support.programs.native import MACHINES, PROGRAMS

ROOT: Final = Path(__file__).parents[2]
DIST: Final = ROOT / "dist"
WHEEL_LIMIT_BYTES: Final = 2_200_000
"""Without the programs in C."""

BUILT: Final = "nodeagent/native/built/"
PROGRAM_LIMITS: Final = {"nodeagent-oci-shim": 300 * 1024, "libnodeagent-vgpu.so": 200 * 1024}
"""One is loaded before every container, the other into every process of a container with a part of a GPU."""
FREE: Final = frozenset({"Apache-2.0", "BSD-2-Clause", "BSD-3-Clause", "ISC", "MIT", "PSF-2.0", "Python-2.0"})
"""Licences that put no condition on those who run or pass on the agent beyond naming their authors."""

ALLOWED_BESIDES: Final = {"certifi": "MPL-2.0"}
"""Lists of certificates, passed on as they are; the condition of that licence is about changed copies."""

_SPELLINGS: Final = {
    "apache 2": "Apache-2.0",
    "apache license 2.0": "Apache-2.0",
    "apache license, version 2.0": "Apache-2.0",
    "apache software license": "Apache-2.0",
    "apache 2.0": "Apache-2.0",
    "bsd": "BSD-3-Clause",
    "bsd license": "BSD-3-Clause",
    "3-clause bsd license": "BSD-3-Clause",
    "bsd-3-clause": "BSD-3-Clause",
    "mit license": "MIT",
    "python software foundation license": "PSF-2.0",
    "psf-2.0": "PSF-2.0",
    "isc license (iscl)": "ISC",
}
_PIN: Final = re.compile(r"^([A-Za-z0-9._-]+)==([^ ;\\]+)(?:\s*;\s*([^\\]+))?", re.MULTILINE)
_OPERATORS: Final = re.compile(r"\s+(?:AND|OR)\s+|[()]")


@dataclass(frozen=True, slots=True)
class Part:
    """One library that is installed with the agent."""

    name: str
    version: str
    licence: str
    """An SPDX expression where it is known; else what its authors wrote."""
    installed: bool = True
    """Whether this platform and Python need it; of others only the pin is known."""


def parse_pins(text: str) -> dict[str, str]:
    """Name to version of every pinned requirement."""
    return {match[1].lower(): match[2] for match in _PIN.finditer(text)}


def find_licence(described: Any) -> str:
    """The licence of a distribution from its metadata, oldest ways of saying it last."""
    expression = described.get("License-Expression")
    if expression:
        return str(expression)
    classified = [str(each).rpartition("::")[2].strip() for each in described.get_all("Classifier") or ()]
    said = [str(described.get("License") or "").partition("\n")[0], *classified]
    known = [_SPELLINGS.get(each.lower(), each if each in FREE else "") for each in said]
    return next((each for each in known if each), said[0] or "unknown")


def find_unfree(parts: Iterable[Part]) -> list[str]:
    """Those whose licence is not known to be free of conditions, each with what it says."""
    return [
        f"{part.name} {part.version}: {part.licence}"
        for part in parts
        if part.installed
        and ALLOWED_BESIDES.get(part.name) != part.licence
        and not {word for word in _OPERATORS.split(part.licence) if word} <= FREE
    ]


def read_parts(pins: Mapping[str, str]) -> tuple[Part, ...]:
    """What the environment says of each pinned library."""
    return tuple(_read_part(name, version) for name, version in sorted(pins.items()))


def _read_part(name: str, version: str) -> Part:
    try:
        found = metadata.metadata(name)
    except metadata.PackageNotFoundError:
        return Part(name, version, "", installed=False)
    return Part(name, version, find_licence(found))


def render_bill(parts: Iterable[Part]) -> str:
    """A CycloneDX document: no time and no serial number, so that it is the same twice."""
    own = {"type": "application", "name": "nodeagent", "version": __version__, "bom-ref": "nodeagent"}
    components = [
        {
            "type": "library",
            "name": part.name,
            "version": part.version,
            "purl": f"pkg:pypi/{part.name}@{part.version}",
            "bom-ref": part.name,
            **({"licenses": [{"expression": part.licence}]} if part.licence else {}),
        }
        for part in parts
    ]
    document = {
        "bomFormat": "CycloneDX",
        "specVersion": "1.5",
        "version": 1,
        "metadata": {"component": own},
        "components": components,
    }
    return json.dumps(document, indent=2) + "\n"


def build(target: Path, epoch: str) -> list[Path]:
    """Build both archives into an empty directory, in their order by name."""
    environ = os.environ | {"SOURCE_DATE_EPOCH": epoch, "TZ": "UTC", "LC_ALL": "C.UTF-8"}
    command = [sys.executable, "-m", "hatchling", "build", "--directory", str(target)]
    subprocess.run(command, cwd=ROOT, env=environ, check=True, stdout=subprocess.DEVNULL)
    return sorted(target.iterdir())


def judge_wheel(wheel: Path) -> list[str]:
    """What is wrong with a wheel that is to be handed out: programs in C are missing, or the rest is too large."""
    with zipfile.ZipFile(wheel) as archive:
        built = {each.filename: each.compress_size for each in archive.infolist() if each.filename.startswith(BUILT)}
        sizes = {name: archive.getinfo(name).file_size for name in built}
    rest = wheel.stat().st_size - sum(built.values())
    wanted = [f"{BUILT}{machine}/{name}" for machine in MACHINES for name in PROGRAMS]
    problems = [f"{wheel.name} lacks {name}: `make native`" for name in wanted if name not in built]
    for name, size in sizes.items():
        limit = PROGRAM_LIMITS.get(name.rpartition("/")[2], size)
        if size > limit:
            problems.append(f"{name} has {size} bytes, allowed are {limit}")
    if rest > WHEEL_LIMIT_BYTES:
        problems.append(f"{wheel.name} has {rest} bytes beside the programs in C, allowed are {WHEEL_LIMIT_BYTES}")
    return problems


def _read_epoch() -> str:
    given = os.environ.get("SOURCE_DATE_EPOCH")
    if given:
        return given
    command = ["git", "log", "-1", "--format=%ct"]
    return subprocess.run(command, cwd=ROOT, check=True, capture_output=True, text=True).stdout.strip()


def main() -> int:
    """Build twice, compare, judge, and put the result into dist/."""
    pins = parse_pins((ROOT / "requirements/runtime.txt").read_text())
    parts = read_parts(pins)
    problems = [f"licence not known to be free: {each}" for each in find_unfree(parts)]
    with tempfile.TemporaryDirectory() as first, tempfile.TemporaryDirectory() as second:
        epoch = _read_epoch()
        one, two = build(Path(first), epoch), build(Path(second), epoch)
        problems += [
            f"not the same twice: {a.name}"
            for a, b in zip(one, two, strict=True)
            if not filecmp.cmp(a, b, shallow=False)
        ]
        for path in one:
            if path.suffix == ".whl":
                problems += judge_wheel(path)
        shutil.rmtree(DIST, ignore_errors=True)
        DIST.mkdir()
        for path in one:
            shutil.copyfile(path, DIST / path.name)
    (DIST / "nodeagent.cdx.json").write_text(render_bill(parts), encoding="utf-8")
    for path in sorted(DIST.iterdir()):
        sys.stdout.write(f"{path.relative_to(ROOT)}: {path.stat().st_size} bytes\n")
    for problem in problems:
        sys.stderr.write(f"{problem}\n")
    return int(bool(problems))


if __name__ == "__main__":
    sys.exit(main())
