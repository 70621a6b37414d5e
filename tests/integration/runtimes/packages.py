"""Programs out of Debian packages, unpacked into the cache and never installed, so that the machine keeps its own."""

import re
import shutil
import tempfile
from pathlib import Path

from tests.integration.runtimes.support import run
from tests.support.files.cache import find_cache


def fetch_package(name: str) -> Path:
    """The root directory of an unpacked package, in the release that apt knows; fetched once."""
    candidate = re.search(r"Candidate: (\S+)", run("apt-cache", "policy", name))
    assert candidate is not None, f"apt knows no package {name}: run `apt-get update`"
    cache = find_cache() / "packages"
    place = cache / f"{name}_{candidate[1].replace(':', '%3a')}"
    if not place.is_dir():
        cache.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(dir=cache) as directory:
            run("apt-get", "-o", "APT::Sandbox::User=root", "download", name, cwd=Path(directory))
            (archive,) = Path(directory).glob("*.deb")
            run("dpkg", "--extract", archive, Path(directory) / "root")
            shutil.move(Path(directory) / "root", place)
    return place
