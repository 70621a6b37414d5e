"""The fake host as a fixture."""

from pathlib import Path

import pytest

from tests.unit.edge.host.tree import HostTree

__all__ = ["host"]


@pytest.fixture
def host(tmp_path: Path) -> HostTree:
    return HostTree(tmp_path / "host")
