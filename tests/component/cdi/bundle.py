"""A container that is being created, and the hook that is run for it."""

import json
import os
import shutil
import subprocess
from pathlib import Path

import pytest

from nodeagent.edge.host.driver.ldcache import parse_library_cache

COMPILER = shutil.which("cc") or shutil.which("gcc")
needs_compiler = pytest.mark.skipif(COMPILER is None, reason="the hook is C")
needs_root = pytest.mark.skipif(os.geteuid() != 0, reason="namespaces and mounts are root's")


class Bundle:
    """A container that is being created."""

    def __init__(self, program: Path, directory: Path) -> None:
        self.program, self.directory = program, directory
        self.root = directory / "rootfs"
        (self.root / "etc").mkdir(parents=True)
        self.state = json.dumps({"ociVersion": "1.0.2", "x": [{"bundle": "no"}], "bundle": str(directory), "pid": 1})
        config = {"process": {"args": ['a]"b']}, "root": {"readonly": True, "path": "rootfs"}}
        (directory / "config.json").write_text(json.dumps(config))

    def run(self, *arguments: str, state: str | None = None) -> tuple[int, str]:
        text = self.state if state is None else state
        done = subprocess.run(
            [self.program, *arguments], input=text, capture_output=True, text=True, check=False, timeout=30
        )
        return done.returncode, done.stderr


def list_cached(root: Path) -> dict[str, str]:
    return {library.name: library.path for library in parse_library_cache((root / "etc/ld.so.cache").read_bytes())}
