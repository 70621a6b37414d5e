"""A host on which runtimes are looked for."""

from pathlib import Path

import pytest


@pytest.fixture
def host(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A host root with a short name: the address of a socket is limited to 107 bytes."""
    monkeypatch.chdir(tmp_path)
    root = Path("h")
    for directory in ("run/containerd", "run/k3s/containerd", "var/run/crio", "usr/bin"):
        (root / directory).mkdir(parents=True)
    return root
