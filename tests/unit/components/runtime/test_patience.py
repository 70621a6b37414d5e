"""When a restarted runtime has had its time, and when the next restart may be."""

import pytest

from nodeagent.components.runtime.patience import Patience, Pause
from nodeagent.model.runtime import DaemonProcess

LIMIT = 30.0
NOT_YET = "no answer at /s: unknown, server is not initialized yet"


def wait(
    patience: Patience, *, until: float, pid: int = 7, busy_share: float = 0.0, moved: int = 0, age_more: float = 0.0
) -> float:
    """The second at which it was over, by a look each second."""
    for second in range(1, int(until) + 1):
        now = float(second)
        process = DaemonProcess(
            pid=pid or second,
            age_seconds=now - 1 + age_more,
            cpu_seconds=busy_share * now,
            moved_bytes=moved * second,
        )
        patience.note_processes((process,), now)
        if patience.is_over(now):
            return now
    return until


@pytest.mark.parametrize(("took", "expected"), [(0.0, 31.0), (10.0, 31.0), (45.0, 91.0), (400.0, 800.0)])
def test_what_its_last_start_took_counts(took: float, expected: float) -> None:
    """It may take twice that; a process that idles was progress once, when it came."""
    assert wait(Patience(LIMIT, took, 0.0), until=1000) == expected


@pytest.mark.parametrize(("busy_share", "moved"), [(0.5, 0), (0.0, 4096), (0.03, 0)])
def test_a_daemon_that_gets_on_is_waited_for_ten_times_as_long(busy_share: float, moved: int) -> None:
    """By its processor time, or by what it reads and writes; and no longer than that."""
    assert wait(Patience(LIMIT, 0.0, 0.0), until=1000, busy_share=busy_share, moved=moved) == 10 * LIMIT


def test_a_daemon_that_only_waits_is_not_busy() -> None:
    """A program of Go takes some time of a processor even then."""
    assert wait(Patience(LIMIT, 0.0, 0.0), until=1000, busy_share=0.005) == 31.0


@pytest.mark.parametrize("pid", [0, 7])
def test_neither_a_crash_loop_nor_the_daemon_of_before_gets_on(pid: int) -> None:
    """Each process of a loop is another; one that is older than the restart is what is being replaced."""
    older = 100.0 if pid else 0.0
    ended = wait(Patience(LIMIT, 0.0, 0.0), until=1000, pid=pid, busy_share=0.5, age_more=older)
    assert ended == (LIMIT if pid else 31.0)


def test_its_own_word_that_it_is_not_ready_yet_is_progress() -> None:
    """It answers, and waits for its containers without using a processor."""
    patience = Patience(LIMIT, 0.0, 0.0)
    patience.note_silence(NOT_YET, 29.0)
    assert not patience.is_over(58.0)
    patience.note_silence("no answer at /s: connection refused", 58.5)
    assert patience.is_over(59.0)
    assert patience.waited_seconds(59.0) == 59.0


def test_each_pause_is_twice_as_long() -> None:
    """Up to an hour; an hour without any restart, or a person who changes the settings, ends that."""
    pause = Pause()
    assert pause.left_seconds(5.0) == 0.0
    now, pauses = 5.0, []
    for _ in range(8):
        pause.note_restart(now)
        pauses.append(pause.left_seconds(now))
        now += pauses[-1]
        assert pause.left_seconds(now) == 0.0
    assert pauses == [60.0, 120.0, 240.0, 480.0, 960.0, 1920.0, 3600.0, 60.0]
    pause.note_restart(now)
    pause.forget()
    assert pause.left_seconds(now) == 0.0
