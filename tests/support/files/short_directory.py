"""A scratch directory with a short name: a unix socket's path has room for 107 bytes, and pytest's are long."""

import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest


@pytest.fixture
def short_dir() -> Iterator[Path]:
    """A directory of the test's own, gone after it."""
    directory = Path(tempfile.mkdtemp(prefix="na-"))
    yield directory
    shutil.rmtree(directory)
