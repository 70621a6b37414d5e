"""The fake host as a fixture."""

from pathlib import Path

import pytest

from tests.support.files.short_directory import short_dir
from tests.unit.edge.host.tree import HostTree

__all__ = ["host", "short_dir"]


@pytest.fixture
def host(tmp_path: Path) -> HostTree:
    return HostTree(tmp_path / "host")
