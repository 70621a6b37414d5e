"""The name of this boot."""

from pathlib import Path

import pytest

from nodeagent.edge.host.errors import FileUnreadable
from nodeagent.edge.host.files.sealed_store import read_boot_id


def test_boot_id_is_read_without_its_newline(tmp_path: Path) -> None:
    """The id is one bare word."""
    path = tmp_path / "sys/kernel/random/boot_id"
    path.parent.mkdir(parents=True)
    path.write_text("0a1b2c3d-0000-4000-8000-123456789abc\n")
    assert read_boot_id(tmp_path) == "0a1b2c3d-0000-4000-8000-123456789abc"


def test_boot_id_is_the_same_all_through_a_boot() -> None:
    """The kernel's own answer does not change between two reads."""
    assert read_boot_id() == read_boot_id() != ""


def test_missing_boot_id_is_an_error(tmp_path: Path) -> None:
    """Without a boot id nobody may guess that this is still the same boot."""
    with pytest.raises(FileUnreadable, match="boot_id"):
        read_boot_id(tmp_path)
