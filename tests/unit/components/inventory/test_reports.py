"""Reports of the driver that belong together."""

from nodeagent.components.inventory.reports import BURST_SECONDS, Reports


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
