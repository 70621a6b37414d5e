"""A temporary directory whose name leaves room for unix sockets; pytest's own is longer than a cluster allows."""

import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest


@pytest.fixture
def short_path() -> Iterator[Path]:
    with tempfile.TemporaryDirectory(prefix="na-", dir="/tmp") as name:
        yield Path(name)
