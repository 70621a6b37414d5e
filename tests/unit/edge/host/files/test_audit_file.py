"""The audit log on disk, over lives and within its bound."""

import stat
import threading
from collections.abc import MutableMapping
from pathlib import Path
from typing import Any

import pytest

from nodeagent.core.log.audit import DONE, Change, noting
from nodeagent.edge.host.errors import FileUnreadable
from nodeagent.edge.host.files.audit_file import BEFORE_NAME, NAME, AuditFile, open_audit, read_audit

pytestmark = pytest.mark.may_block("nothing here runs on an event loop")


def make_change(action: str, outcome: str = DONE) -> Change:
    return Change(at=1.0, kind="service", name="containerd.service", action=action, outcome=outcome)


def test_changes_are_kept_over_lives(tmp_path: Path) -> None:
    """In their order, in a file that is its owner's alone."""
    for life in ("first", "second"):
        with open_audit(tmp_path), noting("service", "containerd.service", life):
            pass
    assert [each.action for each in read_audit(tmp_path)] == ["first", "second"]
    assert stat.S_IMODE((tmp_path / NAME).stat().st_mode) == 0o600


def test_nothing_is_noted_where_nothing_was_changed(tmp_path: Path) -> None:
    with open_audit(tmp_path):
        pass
    assert (read_audit(tmp_path), list(tmp_path.iterdir())) == ((), [])


def test_a_full_file_takes_the_place_of_the_one_before(tmp_path: Path) -> None:
    """Of many changes the newest are kept, in two files of the size that is allowed."""
    file = AuditFile(tmp_path, bytes_max=1000)
    for number in range(100):
        file.keep(make_change(f"change {number}"))
    file.close()
    kept = [each.action for each in read_audit(tmp_path)]
    assert kept == [f"change {number}" for number in range(100 - len(kept), 100)]
    assert len(kept) > 10
    assert all((tmp_path / name).stat().st_size <= 1000 for name in (NAME, BEFORE_NAME))


def test_a_failure_that_repeats_is_written_once(tmp_path: Path) -> None:
    """Until it succeeds, or fails for another reason; many others do not make room for ever."""
    file = AuditFile(tmp_path)
    outcomes = ("refused", "refused", "refused", "no answer", "refused", DONE, DONE, "refused")
    for outcome in outcomes:
        file.keep(make_change("restart", outcome))
    for number in range(300):
        file.keep(make_change(f"other {number}", "refused"))
    file.keep(make_change("restart", "refused"))
    file.close()
    kept = [each.outcome for each in read_audit(tmp_path) if each.action == "restart"]
    assert kept == ["refused", "no answer", "refused", DONE, DONE, "refused", "refused"]


def test_a_disk_that_hangs_holds_nobody_up(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """What finds no room is counted in the next line that does; the close does not wait for ever."""
    hangs, goes_on, written = threading.Event(), threading.Event(), threading.Semaphore(0)
    write = AuditFile._write

    def hang(self: AuditFile, line: bytes) -> None:
        hangs.set()
        assert goes_on.wait(20)
        write(self, line)
        written.release()

    monkeypatch.setattr(AuditFile, "_write", hang)
    file = AuditFile(tmp_path, waiting_max=1)
    file.keep(make_change("hangs"))
    assert hangs.wait(20)
    for action in ("waits", "missed", "missed too"):
        file.keep(make_change(action))
    with monkeypatch.context() as impatient:
        impatient.setattr("nodeagent.edge.host.files.audit_file._CLOSE_SECONDS", 0.01)
        file.close()
    goes_on.set()
    written.acquire(timeout=20)
    written.acquire(timeout=20)
    file.keep(make_change("after"))
    file.close()
    assert [(each.action, each.missed) for each in read_audit(tmp_path)] == [("hangs", 0), ("waits", 0), ("after", 2)]


def test_a_disk_that_is_full_is_logged(tmp_path: Path, log_lines: list[MutableMapping[str, Any]]) -> None:
    """The change was made, and nobody is held up because it is not in the log."""
    (tmp_path / NAME).mkdir()
    file = AuditFile(tmp_path)
    file.keep(make_change("restart"))
    file.close()
    assert [line["event"] for line in log_lines] == ["change_not_noted"]
    with pytest.raises(FileUnreadable):
        read_audit(tmp_path)


def test_a_link_in_its_place_is_not_followed(tmp_path: Path) -> None:
    """Neither written nor read."""
    other = tmp_path / "other"
    other.write_text("")
    (tmp_path / NAME).symlink_to(other)
    file = AuditFile(tmp_path)
    file.keep(make_change("restart"))
    file.close()
    assert other.read_text() == ""
    with pytest.raises(FileUnreadable):
        read_audit(tmp_path)


def test_half_a_line_is_left_out(tmp_path: Path) -> None:
    """A power cut leaves one; what was written after it counts."""
    (tmp_path / NAME).write_text('{"at": 1, "ki\n')
    with open_audit(tmp_path), noting("gpu", "GPU 0", "reset"):
        pass
    assert [each.action for each in read_audit(tmp_path)] == ["reset"]
