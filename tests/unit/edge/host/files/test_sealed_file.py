"""A state file is whole or not used; damage is moved aside and the copy before it used."""

from functools import partial
from pathlib import Path

import pytest

from nodeagent.edge.host.errors import FileNotWritten
from nodeagent.edge.host.files import sealed_file
from nodeagent.edge.host.files.atomic_file import read_bounded
from nodeagent.edge.host.files.sealed_file import ASIDE_KEPT, SealedFile, Unsealed


@pytest.fixture
def file(tmp_path: Path) -> SealedFile:
    return SealedFile(tmp_path / "state.json", "test-state", 3)


def test_what_was_written_is_read(file: SealedFile) -> None:
    for body in (b"", b"first", b"\x00\xff\n" * 1000):
        file.write(body)
        assert file.read() == Unsealed(body=body)


def test_no_file_is_no_trouble(file: SealedFile) -> None:
    """A first start has nothing to read."""
    assert file.read() == Unsealed(body=None)


def test_file_is_for_its_owner_alone(file: SealedFile) -> None:
    """Verdicts are nobody else's to write."""
    file.write(b"x")
    assert file.path.stat().st_mode & 0o777 == 0o600


def test_any_damage_is_noticed(file: SealedFile) -> None:
    """Every prefix and every flipped bit: the copy before is used, never what is damaged."""
    file.write(b"before")
    file.write(b"now, with a little more")
    good = file.path.read_bytes()
    damaged = [good[:length] for length in range(len(good))]
    damaged += [
        good[:place] + bytes([good[place] ^ 1 << bit]) + good[place + 1 :]
        for place in range(len(good))
        for bit in (0, 5)
    ]
    for content in damaged:
        file.path.write_bytes(content)
        found = file.read()
        assert (found.body, len(found.troubles)) == (b"before", 1)


def test_damage_to_both_is_an_empty_start(file: SealedFile) -> None:
    """Two troubles, no body, and both files kept for people."""
    file.write(b"a")
    file.write(b"b")
    for path in file.path.parent.iterdir():
        path.write_bytes(b"scribble")
    found = file.read()
    assert (found.body, len(found.troubles)) == (None, 2)
    assert {path.name for path in file.path.parent.iterdir()} == {"state.json.aside.1", "state.json.previous.aside.1"}
    assert file.read() == Unsealed(body=None)


def test_newer_version_is_kept_for_the_newer_agent(file: SealedFile) -> None:
    """After a downgrade the file is moved aside whole."""
    newer = SealedFile(file.path, "test-state", 4)
    newer.write(b"from the future")
    content = file.path.read_bytes()
    found = file.read()
    assert found.body is None
    assert "it is of version 4, this agent reads version 3" in found.troubles[0]
    assert (file.path.parent / "state.json.aside.1").read_bytes() == content


def test_another_files_seal_is_damage(file: SealedFile) -> None:
    """A file in the wrong place is not this one."""
    SealedFile(file.path, "other-state", 3).write(b"x")
    assert file.read().body is None


def test_only_the_newest_damaged_files_are_kept(file: SealedFile) -> None:
    """Damage again and again fills no disk."""
    for number in range(12):
        file.path.write_bytes(b"bad %d" % number)
        file.read()
    kept = sorted(path.read_bytes() for path in file.path.parent.iterdir())
    assert kept == sorted(b"bad %d" % number for number in range(12 - ASIDE_KEPT, 12))


def test_owner_can_discard_a_body(file: SealedFile) -> None:
    """Whole bytes may still mean nothing to who reads them."""
    file.write(b"not what it should be")
    assert file.discard("no such field").endswith("no such field; moved to state.json.aside.1")
    assert file.read() == Unsealed(body=None)


def test_something_else_in_place_of_the_file_is_said(file: SealedFile) -> None:
    """A directory or a link is not followed and not taken for a first start."""
    file.path.mkdir()
    assert file.read().troubles
    file.path.rmdir()
    file.path.symlink_to("/etc/hostname")
    found = file.read()
    assert (found.body, len(found.troubles)) == (None, 1)


def test_file_of_absurd_size_is_moved_aside(file: SealedFile, monkeypatch: pytest.MonkeyPatch) -> None:
    """Nothing honest is that large."""
    monkeypatch.setattr(sealed_file, "read_bounded", partial(read_bounded, limit_bytes=8))
    file.path.write_bytes(b"more than eight bytes")
    assert "larger than 8 bytes" in file.read().troubles[0]


def test_write_that_fails_leaves_the_old_body(file: SealedFile) -> None:
    """A directory in the way of the target is refused, and said."""
    file.path.mkdir()
    (file.path / "inside").touch()
    with pytest.raises(FileNotWritten):
        file.write(b"x")


def test_directory_that_cannot_be_changed_is_said(file: SealedFile, monkeypatch: pytest.MonkeyPatch) -> None:
    """Damage that cannot be moved aside is not used all the same."""
    file.path.write_bytes(b"bad")

    def refuse(*_: object) -> None:
        raise PermissionError(13, "Permission denied")

    monkeypatch.setattr(Path, "rename", refuse)
    found = file.read()
    assert found.body is None
    assert found.troubles[0].endswith("it cannot be moved aside: permission denied")
