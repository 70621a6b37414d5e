"""The journal's file: what is there after each call, and after each failure."""

import os
from pathlib import Path

import pytest

from nodeagent.edge.host.files.journal_file import JournalFile
from nodeagent.model.errors import JournalUnavailable


@pytest.fixture
def journal(tmp_path: Path) -> JournalFile:
    return JournalFile(tmp_path / "state", "journal")


def names(journal: JournalFile) -> list[str]:
    return sorted(path.name for path in journal.path.parent.iterdir())


def begin(journal: JournalFile, content: bytes = b"one\n") -> None:
    journal.prepare()
    journal.begin(content)


def test_directory_is_made_for_the_owner_alone(journal: JournalFile) -> None:
    """A missing state directory is made, readable by nobody else, and so is the journal."""
    begin(journal)
    assert journal.path.parent.stat().st_mode & 0o777 == 0o700
    assert journal.path.stat().st_mode & 0o777 == 0o600
    journal.close()


def test_appended_bytes_follow_the_beginning(journal: JournalFile) -> None:
    """What was begun and appended is read back, and its size is known."""
    assert journal.size_bytes == 0
    begin(journal)
    journal.append(b"two\n")
    assert journal.size_bytes == 8
    journal.close()
    assert journal.read() == (b"one\ntwo\n", None, "")


def test_a_sync_is_made_where_asked_for(journal: JournalFile, monkeypatch: pytest.MonkeyPatch) -> None:
    """What nobody relies on costs no sync, and is written all the same."""
    begin(journal)
    synced: list[int] = []
    monkeypatch.setattr(os, "fdatasync", synced.append)
    journal.append(b"two\n", durable=False)
    assert synced == []
    journal.append(b"three\n")
    assert len(synced) == 1
    assert journal.read().current == b"one\ntwo\nthree\n"
    journal.close()


def test_beginning_anew_keeps_the_one_before(journal: JournalFile) -> None:
    """The last journal stays under a second name, also when it is begun again and again."""
    begin(journal)
    journal.append(b"two\n")
    journal.begin(b"three\n")
    assert journal.read() == (b"three\n", b"one\ntwo\n", "")
    journal.begin(b"four\n")
    assert journal.read() == (b"four\n", b"three\n", "")
    assert names(journal) == ["journal", "journal.prev"]
    journal.close()


def test_leftovers_of_interrupted_writes_are_cleared(journal: JournalFile) -> None:
    """A temporary file of a writer that was killed does not stay for ever, a foreign file does."""
    begin(journal)
    (journal.path.parent / ".journal.0123abcd.tmp").write_bytes(b"half")
    (journal.path.parent / ".journal.prev.new").write_bytes(b"half")
    (journal.path.parent / "notes").write_bytes(b"mine")
    begin(journal, b"two\n")
    assert names(journal) == ["journal", "journal.prev", "notes"]
    journal.close()


def test_few_damaged_journals_are_kept(journal: JournalFile) -> None:
    """A journal set aside keeps its content; the oldest of many goes."""
    journal.prepare()
    for number in range(5):
        journal.path.write_bytes(b"%d" % number)
        journal.set_aside(f"2026010{number}")
    assert names(journal) == ["journal.bad.20260102", "journal.bad.20260103", "journal.bad.20260104"]
    assert (journal.path.parent / "journal.bad.20260104").read_bytes() == b"4"


def test_setting_aside_what_is_not_there_fails(journal: JournalFile) -> None:
    """Evidence that cannot be kept is an error, not a silence."""
    journal.prepare()
    with pytest.raises(JournalUnavailable, match="no such file"):
        journal.set_aside("now")


@pytest.mark.parametrize("tamper", ["remove", "replace", "grow", "truncate"])
def test_a_file_that_somebody_else_changed_is_not_written(journal: JournalFile, tamper: str) -> None:
    """An append that no reader would find, or after bytes that are not ours, is refused until the journal is begun."""
    begin(journal)
    match tamper:
        case "remove":
            journal.path.unlink()
        case "replace":
            journal.path.unlink()
            journal.path.write_bytes(b"one\n")
        case "grow":
            with journal.path.open("ab") as file:
                file.write(b"x")
        case _:
            os.truncate(journal.path, 1)
    for _ in range(2):
        with pytest.raises(JournalUnavailable):
            journal.append(b"two\n")
    journal.begin(b"three\n")
    journal.append(b"four\n")
    assert journal.read().current == b"three\nfour\n"
    journal.close()


def test_unreadable_files_are_told_from_absent_ones(journal: JournalFile) -> None:
    """A directory, a link or a pipe in place of the journal is a problem with a reason, and reads as nothing."""
    assert journal.read() == (None, None, "")
    journal.prepare()
    journal.path.mkdir()
    (journal.path.parent / "journal.prev").symlink_to("/etc/hostname")
    current, previous, problem = journal.read()
    assert (current, previous) == (b"", b"")
    assert "journal" in problem
    assert "symbolic link" in problem


def test_a_journal_too_large_to_be_one_is_not_read(journal: JournalFile, monkeypatch: pytest.MonkeyPatch) -> None:
    """A file past any honest size is a problem, not a reason to fill the memory."""
    monkeypatch.setattr("nodeagent.edge.host.files.journal_file._READ_LIMIT_BYTES", 3)
    begin(journal)
    assert journal.read()[0] == b""
    assert "larger than 3 bytes" in journal.read().problem
    journal.close()


def test_an_odd_thing_in_place_of_the_journal_can_be_set_aside(journal: JournalFile) -> None:
    """Even a directory is moved out of the way."""
    journal.prepare()
    journal.path.mkdir()
    journal.set_aside("now")
    journal.begin(b"one\n")
    assert journal.read().current == b"one\n"
    journal.close()


def test_a_directory_of_another_user_is_refused(journal: JournalFile, monkeypatch: pytest.MonkeyPatch) -> None:
    """Somebody who owns the directory could change the journal behind our back."""
    journal.prepare()
    monkeypatch.setattr(os, "geteuid", lambda: 4242)
    with pytest.raises(JournalUnavailable, match=f"belongs to user {os.getuid()}: give it to user 4242"):
        journal.prepare()


def test_a_directory_that_cannot_be_listed_is_refused(journal: JournalFile, monkeypatch: pytest.MonkeyPatch) -> None:
    """Without a look at what is there nothing is written."""

    def fail(_: Path) -> None:
        raise OSError(5, "Input/output error")

    with monkeypatch.context() as patched:
        patched.setattr(os, "listdir", fail)
        with pytest.raises(JournalUnavailable, match="put/output error"):
            journal.prepare()


def test_a_directory_that_cannot_be_made_is_named_with_a_remedy(tmp_path: Path) -> None:
    """A file where the directory should be is told as such."""
    (tmp_path / "state").write_bytes(b"")
    with pytest.raises(JournalUnavailable, match="state"):
        JournalFile(tmp_path / "state", "journal").prepare()


@pytest.mark.parametrize("step", ["write", "fdatasync"])
def test_after_a_failed_append_only_a_new_beginning_helps(
    journal: JournalFile, monkeypatch: pytest.MonkeyPatch, step: str
) -> None:
    """A failed write is never followed by another one to the same file as if nothing had happened."""
    begin(journal)

    def fail(*_: object) -> int:
        raise OSError(28, "No space left on device")

    with monkeypatch.context() as patched:
        patched.setattr(os, step, fail)
        with pytest.raises(JournalUnavailable, match="no space left on device: free space"):
            journal.append(b"two\n")
    with pytest.raises(JournalUnavailable):
        journal.append(b"three\n")
    journal.begin(b"four\n")
    journal.append(b"five\n")
    assert journal.read().current == b"four\nfive\n"
    journal.close()


@pytest.mark.parametrize("step", ["link", "rename", "fsync"])
def test_a_failed_beginning_leaves_a_journal(journal: JournalFile, monkeypatch: pytest.MonkeyPatch, step: str) -> None:
    """Whatever step of replacing it fails, there is a whole journal afterwards, the old or the new."""
    begin(journal)

    def fail(*_: object, **__: object) -> None:
        raise OSError(5, "Input/output error")

    with monkeypatch.context() as patched:
        patched.setattr(os, step, fail)
        with pytest.raises(JournalUnavailable, match="put/output error"):
            journal.begin(b"two\n")
    assert journal.read().current in {b"one\n", b"two\n"}
    begin(journal, b"three\n")
    assert journal.read().current == b"three\n"
    journal.close()
