"""The journal as the event loop uses it: one agent at a time, bounded in time, mended by beginning anew."""

import asyncio
import os
import threading
import time
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest

from nodeagent.core.introspect import count_descriptors
from nodeagent.edge.host.errors import StateLocked
from nodeagent.edge.host.files import journal_disk
from nodeagent.edge.host.files.journal_disk import JournalDisk, JournalTally, plan_slowness
from nodeagent.edge.host.files.journal_file import JournalFile
from nodeagent.model.errors import JournalUnavailable
from tests.support.waiting import wait_until


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


async def test_who_comes_after_the_end_is_refused_and_leaves_nothing(tmp_path: Path) -> None:
    """A call that was under way may come late: the directory may be another agent's by then, and no thread is ended."""
    disk = JournalDisk(tmp_path)
    await disk.open()
    await disk.begin(b"one\n")
    await disk.aclose()
    come: tuple[Callable[[], Awaitable[object]], ...] = (
        lambda: disk.append(b"two\n"),
        lambda: disk.begin(b"three\n"),
        disk.open,
        disk.read_room,
    )
    for late in come:
        with pytest.raises(JournalUnavailable, match="has let go of it"):
            await late()
    other = JournalDisk(tmp_path)
    assert await other.open() == (b"one\n", None, "")
    await other.aclose()


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
    disk = JournalDisk(tmp_path)
    await disk.open()
    await disk.begin(b"one\n")
    back, ended = threading.Event(), threading.Event()
    append = JournalFile.append

    def hang(file: JournalFile, content: bytes, **how: Any) -> None:
        back.wait(10)
        try:
            append(file, content, **how)
        finally:
            ended.set()

    with monkeypatch.context() as patched:
        patched.setattr(JournalFile, "append", hang)
        patched.setattr(disk, "_write_seconds", 0.05)
        with pytest.raises(JournalUnavailable, match=r"within 0\.05 s"):
            await disk.append(b"two\n")
    await disk.begin(b"three\n")
    back.set()
    assert ended.wait(10)
    await disk.append(b"four\n")
    await disk.aclose()
    assert (tmp_path / "allocations.journal").read_bytes() == b"three\nfour\n"


async def test_a_sync_that_comes_back_late_lets_go_of_its_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A disk that hangs now and then leaves no descriptor behind for each time."""
    disk = JournalDisk(tmp_path)
    await disk.open()
    await disk.begin(b"one\n")
    back = threading.Event()
    with monkeypatch.context() as patched:
        patched.setattr(os, "fdatasync", lambda _descriptor: back.wait(10))
        patched.setattr(disk, "_write_seconds", 0.05)
        with pytest.raises(JournalUnavailable, match=r"within 0\.05 s"):
            await disk.append(b"two\n")
        patched.setattr(disk, "_write_seconds", 10.0)
        await disk.begin(b"three\n")
        held = count_descriptors()
        back.set()
        await wait_until(lambda: count_descriptors() == held - 1)
    await disk.append(b"four\n")
    await disk.aclose()
    assert (tmp_path / "allocations.journal").read_bytes() == b"three\nfour\n"


async def test_a_hung_call_keeps_its_file_and_nobody_waits(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Closing ends in time and frees the lock; the file under the hung call is left alone."""
    disk = JournalDisk(tmp_path)
    await disk.open()
    await disk.begin(b"one\n")
    back, ended = threading.Event(), threading.Event()
    # By its number: a function that holds the file's last reference would be called by the file's end as it ends.
    close, hanging = JournalFile.close, id(disk._file)

    def hang(file: JournalFile) -> None:
        if id(file) == hanging:  # another one may be closed by the collector of garbage at any moment, in any thread
            back.wait(10)
        close(file)
        if id(file) == hanging:
            ended.set()

    monkeypatch.setattr(JournalFile, "close", hang)
    monkeypatch.setattr(disk, "_write_seconds", 0.05)
    await disk.aclose()
    other = JournalDisk(tmp_path)
    assert (await other.open())[0] == b"one\n"
    back.set()
    assert ended.wait(10)
    await other.aclose()


class Hanging:
    """Appends that do not return before they are let."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.back = threading.Event()
        append = JournalFile.append

        def hang(file: JournalFile, content: bytes, **how: Any) -> None:
            self.back.wait(10)
            append(file, content, **how)

        monkeypatch.setattr(JournalFile, "append", hang)


async def lets_the_loop_go_on(work: Awaitable[None]) -> bool:
    """Whether anything else has its turn before the work is done."""
    turns: list[int] = []
    asyncio.get_running_loop().call_soon(turns.append, 1)
    await work
    return bool(turns)


def be_patient(monkeypatch: pytest.MonkeyPatch, seconds: float) -> None:
    monkeypatch.setattr(journal_disk, "PATIENCE_SECONDS", seconds)


async def test_the_loop_stands_still_for_a_fast_disk(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """An append within the patience is through in the very turn of the loop."""
    be_patient(monkeypatch, 10)
    disk = JournalDisk(tmp_path)
    await disk.open()
    await disk.begin(b"one\n")
    assert not await lets_the_loop_go_on(disk.append(b"two\n"))
    assert (tmp_path / "allocations.journal").read_bytes() == b"one\ntwo\n"
    await disk.aclose()


async def test_the_loop_goes_on_while_a_disk_hangs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Past the patience the loop is free, and what was begun is durable when it has been awaited."""
    be_patient(monkeypatch, 0.001)
    disk = JournalDisk(tmp_path)
    await disk.open()
    await disk.begin(b"one\n")
    hanging = Hanging(monkeypatch)
    asyncio.get_running_loop().call_later(0.01, hanging.back.set)
    assert await lets_the_loop_go_on(disk.append(b"two\n"))
    assert (tmp_path / "allocations.journal").read_bytes() == b"one\ntwo\n"
    await disk.aclose()


async def test_a_slow_disk_is_not_stood_still_for_again_soon(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """After one append that outlasted the patience the next goes without, until the disk has had its time."""
    offset = 0.0
    be_patient(monkeypatch, 0.001)
    disk = JournalDisk(tmp_path, now=lambda: time.monotonic() + offset)
    await disk.open()
    await disk.begin(b"one\n")
    with monkeypatch.context() as patched:
        hanging = Hanging(patched)
        asyncio.get_running_loop().call_later(0.01, hanging.back.set)
        await disk.append(b"two\n")
    be_patient(monkeypatch, 10)
    offset -= 60.0  # however slow this test is, no time has passed for the disk
    assert await lets_the_loop_go_on(disk.append(b"three\n"))
    offset += 60.0 + plan_slowness(1)
    assert not await lets_the_loop_go_on(disk.append(b"four\n"))
    assert not await lets_the_loop_go_on(disk.append(b"five\n"))
    await disk.aclose()


async def test_a_refusal_of_a_fast_disk_is_heard_at_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """What the disk says within the patience is raised, and the journal begun anew after it."""
    be_patient(monkeypatch, 10)
    disk = JournalDisk(tmp_path)
    await disk.open()
    await disk.begin(b"one\n")
    (tmp_path / "allocations.journal").write_bytes(b"somebody else\n")
    with pytest.raises(JournalUnavailable, match="somebody else has changed it"):
        await disk.append(b"two\n")
    await disk.begin(b"three\n")
    assert not await lets_the_loop_go_on(disk.append(b"four\n"))
    await disk.aclose()


async def test_writes_syncs_and_failures_are_counted(tmp_path: Path) -> None:
    """One tally for all disks of a process: what was tried, what failed, and how long the disk took to be sure."""
    tally = JournalTally()
    disk = JournalDisk(tmp_path, tally=tally)
    await disk.open()
    await disk.begin(b"one\n")
    await disk.append(b"two\n")
    await disk.append(b"three\n", durable=False)
    (tmp_path / "allocations.journal").unlink()
    with pytest.raises(JournalUnavailable):
        await disk.append(b"four\n")
    await disk.begin(b"five\n")
    await disk.aclose()
    assert (tally.writes, tally.failures) == (5, 1)
    assert sum(tally.syncs.counts) == 1
    assert tally.syncs.sum_seconds > 0


def test_slowness_grows_and_is_bounded() -> None:
    """One slow moment is forgotten soon, a slow disk is not asked to be fast more than twice a minute."""
    assert [plan_slowness(misses) for misses in (1, 2, 3, 13, 1000)] == [0.01, 0.02, 0.04, 30.0, 30.0]


async def test_room_is_that_of_the_file_system(tmp_path: Path) -> None:
    """Free bytes as the kernel has them; a directory that is gone is an error with its reason."""
    disk = JournalDisk(tmp_path / "state")
    await disk.open()
    free_bytes, free_files = await disk.read_room()
    assert free_bytes > 0
    assert free_files is None or free_files > 0
    await disk.aclose()
    gone = JournalDisk(tmp_path / "nowhere")
    with pytest.raises(JournalUnavailable, match="no such file"):
        await gone.read_room()
    await gone.aclose()
