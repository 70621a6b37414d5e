"""Reports of the driver that belong together."""

from nodeagent.components.inventory.reports import BURST_SECONDS, RESTARTS_MAX, WINDOW_SECONDS, Reports, WorkerRestarts
from nodeagent.model.telemetry import DriverAccess


def test_a_burst_follows_from_its_first_report() -> None:
    """An XID and what the driver makes of it are one story for each GPU; later reports begin another."""
    reports = Reports()
    assert reports.find_cause("a", 0.0) is None
    reports.note("a", 1, 0.0)
    reports.note("a", 2, 0.1)
    assert reports.find_cause("a", BURST_SECONDS) == 1
    assert reports.find_cause("b", 0.1) is None
    assert reports.find_cause("a", BURST_SECONDS + 0.1) is None
    reports.note("a", 3, BURST_SECONDS + 0.1)
    assert reports.find_cause("a", BURST_SECONDS + 0.2) == 3


def test_a_look_is_explained_by_the_newest_report_until_it_is_old() -> None:
    """What was looked at after its burst explains nothing that is found later."""
    reports = Reports()
    reports.note("a", 1, 0.0)
    reports.note("a", 2, 0.1)
    reports.forget_old(BURST_SECONDS)
    assert reports.newest() == {"a": 2}
    reports.forget_old(BURST_SECONDS + 1)
    assert reports.newest() == {}


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
