"""A process that is replaced again and again is no process that works."""

from nodeagent.components.inventory.reports import RESTARTS_MAX, WINDOW_SECONDS, WorkerRestarts
from nodeagent.model.telemetry import DriverAccess


def test_several_replacements_in_minutes_are_told_until_they_are_long_ago() -> None:
    """One or two are what the process is for; the words say of which kind."""
    restarts = WorkerRestarts()
    assert restarts.judge(DriverAccess(worker_died=7), 0.0) == ""
    assert restarts.judge(DriverAccess(worker_died=8), 10.0) == ""
    assert restarts.judge(DriverAccess(worker_died=8, worker_stuck=1), 20.0) == ""
    told = restarts.judge(DriverAccess(worker_died=9, worker_stuck=1), 30.0)
    assert told == "replaced 9 times because it ended, 1 times because it hung"
    assert restarts.judge(DriverAccess(worker_died=9, worker_stuck=1), 10.0 + WINDOW_SECONDS) == told
    assert restarts.judge(DriverAccess(worker_died=9, worker_stuck=1), 10.1 + WINDOW_SECONDS) == ""


def test_many_at_once_are_several() -> None:
    """Whether one by one or between two looks."""
    restarts = WorkerRestarts()
    restarts.judge(DriverAccess(), 0.0)
    assert restarts.judge(DriverAccess(worker_died=10 * RESTARTS_MAX), 1.0)


def test_made_up_gpus_have_no_such_process() -> None:
    """Nothing is counted where nothing can be replaced."""
    restarts = WorkerRestarts()
    assert restarts.judge(None, 0.0) == restarts.judge(None, 1.0) == ""
