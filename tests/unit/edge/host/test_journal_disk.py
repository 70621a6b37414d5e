"""The journal as the event loop uses it: one agent at a time, bounded in time, mended by beginning anew."""

import os
import threading
from pathlib import Path

import pytest

from nodeagent.edge.host.errors import StateLocked
from nodeagent.edge.host.journal_disk import JournalDisk
from nodeagent.edge.host.journal_file import JournalFile
from nodeagent.model.errors import JournalUnavailable

pytestmark = pytest.mark.anyio


async def test_what_one_agent_wrote_the_next_one_reads(tmp_path: Path) -> None:
    """Opened, begun, appended, closed; and read by the next."""
    disk = JournalDisk(tmp_path)
    assert await disk.open() == (None, None, "")
    await disk.begin(b"one\n")
    await disk.append(b"two\n")
    assert disk.size_bytes == 8
    await disk.aclose()
    disk = JournalDisk(tmp_path)
    assert await disk.open() == (b"one\ntwo\n", None, "")
    await disk.aclose()


async def test_a_second_agent_is_refused_by_name_of_the_first(tmp_path: Path) -> None:
    """Two agents on one directory would give one GPU away twice; the lock goes with the first agent."""
    first, second = JournalDisk(tmp_path), JournalDisk(tmp_path)
    await first.open()
    with pytest.raises(StateLocked, match=f"process {os.getpid()} holds it"):
        await second.open()
    await first.aclose()
    await second.open()
    await second.aclose()


async def test_an_unfit_directory_is_tried_again_at_the_beginning(tmp_path: Path) -> None:
    """An agent may start before its disk is fit, and takes directory and lock when it is."""
    place = tmp_path / "state"
    place.write_bytes(b"in the way")
    disk = JournalDisk(place)
    with pytest.raises(JournalUnavailable):
        await disk.open()
    with pytest.raises(JournalUnavailable):
        await disk.begin(b"one\n")
    place.unlink()
    await disk.begin(b"one\n")
    other = JournalDisk(place)
    with pytest.raises(StateLocked):
        await other.open()
    await other.aclose()
    await disk.aclose()


async def test_a_directory_taken_meanwhile_is_not_written(tmp_path: Path) -> None:
    """Whoever begins late finds the lock held, and leaves the other agent's journal alone."""
    place = tmp_path / "state"
    place.write_bytes(b"in the way")
    late, other = JournalDisk(place), JournalDisk(place)
    with pytest.raises(JournalUnavailable):
        await late.open()
    place.unlink()
    await other.open()
    await other.begin(b"other\n")
    with pytest.raises(JournalUnavailable, match="holds it"):
        await late.begin(b"late\n")
    assert (place / "allocations.journal").read_bytes() == b"other\n"
    await late.aclose()
    await other.aclose()


async def test_an_unwritable_lock_is_an_unfit_directory(tmp_path: Path) -> None:
    """A lock that cannot be made is a reason to try again, not to crash."""
    (tmp_path / "state.lock").mkdir()
    disk = JournalDisk(tmp_path)
    with pytest.raises(JournalUnavailable, match=r"state\.lock"):
        await disk.open()
    await disk.aclose()


async def test_damage_is_set_aside(tmp_path: Path) -> None:
    """The damaged journal gets another name and the next one is begun beside it."""
    (tmp_path / "allocations.journal").write_bytes(b"damaged")
    disk = JournalDisk(tmp_path)
    await disk.open()
    await disk.set_aside("now")
    await disk.begin(b"one\n")
    assert (tmp_path / "allocations.journal.bad.now").read_bytes() == b"damaged"
    await disk.aclose()


async def test_a_disk_that_hangs_fails_in_time_and_is_left_behind(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The caller is not kept waiting, and the hung call, when it comes back, does not reach the new journal."""
    disk = JournalDisk(tmp_path, write_seconds=0.05)
    await disk.open()
    await disk.begin(b"one\n")
    back, ended = threading.Event(), threading.Event()
    append = JournalFile.append

    def hang(file: JournalFile, content: bytes, *, durable: bool = True) -> None:
        back.wait(10)
        try:
            append(file, content, durable=durable)
        finally:
            ended.set()

    with monkeypatch.context() as patched:
        patched.setattr(JournalFile, "append", hang)
        with pytest.raises(JournalUnavailable, match=r"within 0\.05 s"):
            await disk.append(b"two\n")
    await disk.begin(b"three\n")
    back.set()
    assert ended.wait(10)
    await disk.append(b"four\n")
    await disk.aclose()
    assert (tmp_path / "allocations.journal").read_bytes() == b"three\nfour\n"


async def test_a_hung_call_keeps_its_file_and_nobody_waits(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Closing ends in time and frees the lock; the file under the hung call is left alone."""
    disk = JournalDisk(tmp_path, write_seconds=0.05)
    await disk.open()
    await disk.begin(b"one\n")
    back, ended = threading.Event(), threading.Event()
    close = JournalFile.close

    def hang(file: JournalFile) -> None:
        back.wait(10)
        close(file)
        ended.set()

    monkeypatch.setattr(JournalFile, "close", hang)
    await disk.aclose()
    other = JournalDisk(tmp_path)
    assert (await other.open())[0] == b"one\n"
    back.set()
    assert ended.wait(10)
    await other.aclose()
