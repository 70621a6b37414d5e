"""Replacing and reading whole files, on a healthy disk; `tests/faults/host` has the sick one."""

import os
import stat
from pathlib import Path

import pytest

from nodeagent.edge.host.errors import FileNotWritten, FileTooLarge, FileUnreadable
from nodeagent.edge.host.files.atomic_file import (
    read_bounded,
    remove_stale_temporaries,
    sync_directory,
    write_atomically,
)


def test_new_file_has_the_content_and_mode_asked_for(tmp_path: Path) -> None:
    """A new file gets exactly the mode given, whatever the umask."""
    write_atomically(tmp_path / "state", b"one", mode=0o666)
    assert (tmp_path / "state").read_bytes() == b"one"
    assert stat.S_IMODE((tmp_path / "state").stat().st_mode) == 0o666


def test_existing_file_keeps_its_mode(tmp_path: Path) -> None:
    """What a person has set on a file survives its replacement."""
    target = tmp_path / "config.toml"
    target.write_bytes(b"old")
    target.chmod(0o640)
    write_atomically(target, b"new", mode=0o600)
    assert (target.read_bytes(), stat.S_IMODE(target.stat().st_mode)) == (b"new", 0o640)


@pytest.mark.skipif(os.geteuid() != 0, reason="only root may give files away")
def test_existing_file_keeps_its_owner(tmp_path: Path) -> None:
    """A file that belongs to somebody else still does afterwards."""
    target = tmp_path / "owned"
    target.write_bytes(b"old")
    os.chown(target, 1234, 4321)
    write_atomically(target, b"new")
    assert (target.stat().st_uid, target.stat().st_gid) == (1234, 4321)


def test_symbolic_link_is_replaced_by_default(tmp_path: Path) -> None:
    """A link put in the way of a file is not followed unless asked."""
    (tmp_path / "victim").write_bytes(b"precious")
    (tmp_path / "state").symlink_to("victim")
    write_atomically(tmp_path / "state", b"new")
    assert not (tmp_path / "state").is_symlink()
    assert (tmp_path / "victim").read_bytes() == b"precious"


def test_symbolic_link_is_followed_on_demand(tmp_path: Path) -> None:
    """On demand the link stays and the file behind it is the one replaced."""
    (tmp_path / "real").mkdir()
    (tmp_path / "real" / "config").write_bytes(b"old")
    (tmp_path / "config").symlink_to("real/config")
    write_atomically(tmp_path / "config", b"new", follow_symlink=True)
    assert (tmp_path / "config").is_symlink()
    assert (tmp_path / "real" / "config").read_bytes() == b"new"


def test_successful_write_leaves_nothing_beside_the_file(tmp_path: Path) -> None:
    """There is one file afterwards, not two."""
    write_atomically(tmp_path / "state", b"x" * 3_000_000)
    assert [entry.name for entry in tmp_path.iterdir()] == ["state"]


def test_missing_directory_is_named_with_its_remedy(tmp_path: Path) -> None:
    """The error names the file, the step and what to do."""
    with pytest.raises(FileNotWritten, match=r"absent/state: create a temporary .*old file stays\): create the dir"):
        write_atomically(tmp_path / "absent" / "state", b"")


def test_directory_in_place_of_the_file_stays(tmp_path: Path) -> None:
    (tmp_path / "state").mkdir()
    with pytest.raises(FileNotWritten, match="remove the directory"):
        write_atomically(tmp_path / "state", b"")
    assert [entry.name for entry in tmp_path.iterdir()] == ["state"]


def test_stale_temporaries_are_removed_and_nothing_else(tmp_path: Path) -> None:
    """Only names of the writer's own pattern for this very file go."""
    keep = [".state.tmp", ".state.0123456g.tmp", ".other.01234567.tmp", "state", ".state.01234567.tmp.bak"]
    for name in [*keep, ".state.01234567.tmp", ".state.89abcdef.tmp"]:
        (tmp_path / name).touch()
    assert remove_stale_temporaries(tmp_path / "state") == 2
    assert sorted(entry.name for entry in tmp_path.iterdir()) == sorted(keep)


def test_stale_temporaries_of_an_absent_directory_are_an_error(tmp_path: Path) -> None:
    """A state directory that is not there is named."""
    with pytest.raises(FileUnreadable, match="absent"):
        remove_stale_temporaries(tmp_path / "absent" / "state")


def test_sync_of_an_absent_directory_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError):
        sync_directory(tmp_path / "absent")


@pytest.mark.parametrize("size", [0, 1, 4096, 2_500_000])
def test_read_returns_the_whole_file(tmp_path: Path, size: int) -> None:
    """Within the limit nothing is cut off."""
    (tmp_path / "file").write_bytes(b"z" * size)
    assert read_bounded(tmp_path / "file", limit_bytes=max(size, 1)) == b"z" * size


def test_read_refuses_more_than_its_limit(tmp_path: Path) -> None:
    """One byte too many is an error, not a cut."""
    (tmp_path / "file").write_bytes(b"12345")
    with pytest.raises(FileTooLarge, match="larger than 4 bytes"):
        read_bounded(tmp_path / "file", limit_bytes=4)


def test_read_of_an_endless_file_ends() -> None:
    """A device without an end costs the limit, not the memory of the host."""
    with pytest.raises(FileTooLarge):
        read_bounded(Path("/dev/zero"), limit_bytes=100_000)


def test_read_of_a_pipe_does_not_hang(tmp_path: Path) -> None:
    """A named pipe without a writer reads as empty at once."""
    os.mkfifo(tmp_path / "pipe")
    assert read_bounded(tmp_path / "pipe") == b""


def test_read_names_what_is_missing(tmp_path: Path) -> None:
    """The error names the file and the reason."""
    with pytest.raises(FileUnreadable, match="absent: no such file or directory: check that the path is right"):
        read_bounded(tmp_path / "absent")


def test_read_of_a_directory_names_it(tmp_path: Path) -> None:
    """A directory in place of a file is said to be one."""
    with pytest.raises(FileUnreadable, match="remove the directory"):
        read_bounded(tmp_path)


def test_read_refuses_links_on_demand(tmp_path: Path) -> None:
    """State files are not read through links that somebody else may have put there."""
    (tmp_path / "file").write_bytes(b"x")
    (tmp_path / "link").symlink_to("file")
    assert read_bounded(tmp_path / "link") == b"x"
    with pytest.raises(FileUnreadable, match="remove the symbolic link"):
        read_bounded(tmp_path / "link", follow_symlink=False)
