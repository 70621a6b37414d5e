"""A predictable name in a place where others may write is somebody's trap until looked at."""

import os
import re
import stat
from pathlib import Path

import pytest

from nodeagent.edge.host.errors import DirectoryNotPrivate
from nodeagent.edge.host.files.private_directory import find_problem, make_private, name_user, open_private

STRANGER = 54321
needs_root = pytest.mark.skipif(os.geteuid() != 0, reason="needs root, to give a directory away")


def make(path: Path) -> None:
    os.close(make_private(path))


def test_a_directory_of_ones_own_is_made_for_nobody_else(tmp_path: Path) -> None:
    """Whatever the umask; and it is there for the next one."""
    before = os.umask(0)
    try:
        make(tmp_path / "own")
    finally:
        os.umask(before)
    assert stat.S_IMODE((tmp_path / "own").stat().st_mode) == 0o700
    make(tmp_path / "own")


@pytest.mark.parametrize("mode", [0o770, 0o701, 0o777, 0o1777])
def test_one_that_lets_others_in_is_refused_and_left_alone(tmp_path: Path, mode: int) -> None:
    """Who could write there may have done so already: nothing is mended, and the mode is named."""
    place = tmp_path / "own"
    place.mkdir()
    place.chmod(mode)
    with pytest.raises(DirectoryNotPrivate, match=rf"{place} cannot be trusted: its mode is {mode:04o}.*TMPDIR"):
        make(place)
    assert stat.S_IMODE(place.stat().st_mode) == mode


def test_another_users_is_told_from_ones_own(tmp_path: Path) -> None:
    """By owner first: a mode says little where the owner can change it."""
    status = tmp_path.stat()
    assert find_problem(status, status.st_uid + 1) == (
        f"it belongs to {name_user(status.st_uid)}, not to {name_user(status.st_uid + 1)}"
    )


@needs_root
def test_one_that_somebody_made_first_is_refused_by_name(tmp_path: Path) -> None:
    """The path, its owner and what to do."""
    place = tmp_path / "own"
    place.mkdir(mode=0o700)
    os.chown(place, STRANGER, STRANGER)
    with pytest.raises(
        DirectoryNotPrivate, match=rf"{place} .*belongs to user {STRANGER}, not to user root.*remove it"
    ):
        make(place)


def test_a_link_is_not_followed(tmp_path: Path) -> None:
    """Not even to a directory that would do."""
    make(tmp_path / "elsewhere")
    (tmp_path / "own").symlink_to(tmp_path / "elsewhere")
    with pytest.raises(DirectoryNotPrivate, match=re.escape(f"a symbolic link, of {name_user(os.geteuid())}")):
        make(tmp_path / "own")
    beside = make_private(tmp_path / "elsewhere")
    try:
        os.symlink(tmp_path, "1", dir_fd=beside)
        with pytest.raises(DirectoryNotPrivate, match=f"{tmp_path}/elsewhere/1 .*a symbolic link"):
            open_private(tmp_path / "elsewhere/1", beside=beside)
    finally:
        os.close(beside)


def test_a_file_in_the_way_is_named(tmp_path: Path) -> None:
    (tmp_path / "own").write_text("")
    with pytest.raises(DirectoryNotPrivate, match="no directory"):
        make(tmp_path / "own")


def test_what_is_not_there_is_not_a_danger(tmp_path: Path) -> None:
    """Who only looks gets the plain answer."""
    with pytest.raises(FileNotFoundError):
        open_private(tmp_path / "own")


def test_a_place_where_others_could_put_another_is_refused(tmp_path: Path) -> None:
    """Without the sticky bit a directory can be renamed away under its owner; `/tmp` has it."""
    tmp_path.chmod(0o777)
    with pytest.raises(DirectoryNotPrivate, match=rf"{tmp_path} .*0777.*chmod go-w"):
        make(tmp_path / "own")
    tmp_path.chmod(0o1777)
    make(tmp_path / "own")
