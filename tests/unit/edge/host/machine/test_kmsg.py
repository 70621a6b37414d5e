"""Reading the kernel log: from a packet pipe that stands in for it, and from this machine's own."""

import errno
import os
from collections.abc import Callable, Iterator
from pathlib import Path

import anyio
import pytest

from nodeagent.edge.host.errors import KernelLogUnavailable
from nodeagent.edge.host.machine.kernel_log_lines import KernelRecord
from nodeagent.edge.host.machine.kmsg import KERNEL_LOG, KernelLog


class LogPipe:
    """A pipe that keeps records apart as the log device does."""

    def __init__(self) -> None:
        self.reader, self.writer = os.pipe2(os.O_DIRECT | os.O_CLOEXEC)

    @property
    def path(self) -> Path:
        return Path(f"/proc/self/fd/{self.reader}")

    def say(self, sequence: int, text: str = "x", *, priority: int = 6) -> None:
        os.write(self.writer, f"{priority},{sequence},1,-;{text}\n".encode())

    def say_raw(self, raw: bytes) -> None:
        os.write(self.writer, raw)


@pytest.fixture
def pipe() -> Iterator[LogPipe]:
    pipe = LogPipe()
    yield pipe
    os.close(pipe.reader)
    os.close(pipe.writer)


def take(log: KernelLog) -> list[KernelRecord]:
    records: list[KernelRecord] = []
    while (batch := log.read_nowait()) is not None:
        records += batch
    return records


def describe(records: list[KernelRecord]) -> list[tuple[int, int]]:
    return [(record.sequence, record.lost_before) for record in records]


def test_records_come_in_order(pipe: LogPipe) -> None:
    """What is there is read, once, until nothing is left."""
    for sequence in (5, 6, 7):
        pipe.say(sequence)
    with KernelLog(pipe.path) as log:
        assert describe(take(log)) == [(5, 0), (6, 0), (7, 0)]
        assert log.read_nowait() is None


def test_gap_in_the_numbers_is_reported(pipe: LogPipe) -> None:
    """Records that the kernel dropped unread are counted on the next one."""
    for sequence in (5, 9, 10):
        pipe.say(sequence)
    with KernelLog(pipe.path) as log:
        assert describe(take(log)) == [(5, 0), (9, 3), (10, 0)]


def test_reader_resumes_after_what_it_has_handled(pipe: LogPipe) -> None:
    """Earlier records are passed over; a gap since then counts too."""
    for sequence in (4, 5, 8):
        pipe.say(sequence)
    with KernelLog(pipe.path, after_sequence=5) as log:
        assert describe(take(log)) == [(8, 2)]


def test_forged_records_are_refused(pipe: LogPipe) -> None:
    """User space cannot break a GPU by writing to the log, and its records are not counted as lost."""
    pipe.say(1)
    pipe.say(2, "NVRM: Xid (PCI:0000:1b:00): 79, x", priority=8 + 3)
    pipe.say(5, priority=8)
    pipe.say(6)
    with KernelLog(pipe.path) as log:
        assert describe(take(log)) == [(1, 0), (6, 2)]


def test_malformed_record_does_not_end_the_reader(pipe: LogPipe) -> None:
    """It is counted, is not called lost, and the next one is read."""
    pipe.say_raw(b"garbage\n")
    pipe.say(1)
    pipe.say_raw(b"garbage\n")
    pipe.say(3)
    with KernelLog(pipe.path) as log:
        assert describe(take(log)) == [(1, 0), (3, 0)]
        assert log.malformed_count == 2


def test_overwritten_records_do_not_end_the_reader(pipe: LogPipe) -> None:
    """When the ring goes over unread records the kernel says EPIPE once; the reader goes on and reports the gap."""
    answers: list[bytes | OSError] = [b"6,1,1,-;a", BrokenPipeError(errno.EPIPE, "x"), b"6,9,1,-;b", BlockingIOError()]
    with KernelLog(pipe.path, read=script(answers)) as log:
        assert describe(list(log.read_nowait() or ())) == [(1, 0), (9, 7)]


def script(answers: list[bytes | OSError]) -> Callable[[int, int], bytes]:
    def read(descriptor: int, size: int) -> bytes:
        answer = answers.pop(0)
        if isinstance(answer, OSError):
            raise answer
        return answer

    return read


@pytest.mark.parametrize("answer", [b"", OSError(errno.EINVAL, "Invalid argument")])
def test_log_that_cannot_be_read_any_longer_is_an_error(pipe: LogPipe, answer: bytes | OSError) -> None:
    """The end of the log, or a refusal, is raised rather than waited on for ever."""
    with KernelLog(pipe.path, read=script([answer])) as log, pytest.raises(KernelLogUnavailable):
        log.read_nowait()


def test_absent_log_is_named_with_its_remedy(tmp_path: Path) -> None:
    """In a container without the device the error says what to mount."""
    with pytest.raises(KernelLogUnavailable, match="mount the host's /dev/kmsg"), KernelLog(tmp_path / "kmsg"):
        pass


def test_forbidden_log_names_the_capability(tmp_path: Path) -> None:
    """Without the capability the error names it."""
    assert "CAP_SYSLOG" in str(KernelLogUnavailable(tmp_path, PermissionError(errno.EPERM, "Operation not permitted")))


async def test_flood_is_read_in_batches(pipe: LogPipe) -> None:
    """Between batches other tasks get their turn."""
    turns = 0

    async def count_turns() -> None:
        nonlocal turns
        while True:
            turns += 1
            await anyio.lowlevel.checkpoint()

    endless = iter(range(1_000_000))
    with KernelLog(pipe.path, read=lambda descriptor, size: b"6,%d,1,-;x" % next(endless)) as log:
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(count_turns)
            async for record in log.records():
                if record.sequence == 1000:
                    break
            tasks.cancel_scope.cancel()
    assert turns >= 4


async def test_new_records_wake_the_reader(pipe: LogPipe) -> None:
    """A reader that has read everything waits for the next record."""
    pipe.say(1)
    with KernelLog(pipe.path) as log, anyio.fail_after(10):
        records = log.records()
        assert (await anext(records)).sequence == 1
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(say_later, pipe)
            assert (await anext(records)).sequence == 2
        await records.aclose()


async def say_later(pipe: LogPipe) -> None:
    await anyio.wait_all_tasks_blocked()
    pipe.say(2)


@pytest.mark.skipif(not os.access(KERNEL_LOG, os.R_OK), reason="this machine's kernel log may not be read")
def test_own_kernel_log_is_read_from_its_beginning() -> None:
    """The real device gives well-formed records with rising numbers, the kernel's only."""
    try:
        with KernelLog() as log:
            records = take(log)
    except KernelLogUnavailable as error:
        pytest.skip(str(error))
    sequences = [record.sequence for record in records]
    assert sequences == sorted(set(sequences))
    assert records
    assert log.malformed_count == 0
    assert {record.facility for record in records} == {0}
