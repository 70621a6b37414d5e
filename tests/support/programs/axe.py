"""axe-core, the judge of accessibility: one file of JavaScript, fetched once by npm, checked, and never committed."""

import hashlib
import os
import shutil
import subprocess
import tarfile
import tempfile
from pathlib import Path

PACKAGE = "axe-core@4.10.3"
SHA256 = "880970c081707360e64f34cea25ff91892f5bc95675b0776925b9709dd8a68bb"
MEMBER = "package/axe.min.js"
FETCH_SECONDS = 120


class AxeUnavailable(Exception):
    """There is no npm, or it cannot fetch the package."""

    def __init__(self, reason: str) -> None:
        super().__init__(f"cannot fetch {PACKAGE}: {reason}; put its axe.min.js at {find_place()}")


def find_place(home: Path | None = None) -> Path:
    """Where it is kept between runs."""
    base = os.environ.get("XDG_CACHE_HOME") or (home or Path("~").expanduser()) / ".cache"
    return Path(base) / "nodeagent" / PACKAGE.replace("@", "-") / "axe.min.js"


def read_axe() -> str:
    """The program; its content is the one that was looked at when the version was chosen.

    Raises:
        AxeUnavailable: it is not kept and cannot be fetched.
    """
    place = find_place()
    if not place.exists():
        _fetch(place)
    content = place.read_bytes()
    found = hashlib.sha256(content).hexdigest()
    assert found == SHA256, f"{place} is not {PACKAGE}: its SHA-256 is {found}"
    return content.decode()


def _fetch(place: Path) -> None:
    npm = shutil.which("npm")
    if npm is None:
        raise AxeUnavailable("there is no npm")
    with tempfile.TemporaryDirectory() as folder:
        try:
            subprocess.run([npm, "pack", PACKAGE], cwd=folder, check=True, capture_output=True, timeout=FETCH_SECONDS)
        except (subprocess.SubprocessError, OSError) as error:
            raise AxeUnavailable(str(error)) from error
        (archive,) = Path(folder).glob("*.tgz")
        with tarfile.open(archive) as packed:
            member = packed.extractfile(MEMBER)
            assert member is not None
            place.parent.mkdir(parents=True, exist_ok=True)
            place.write_bytes(member.read())
