"""Whether an upgrade is due, and what keeps it from beginning."""

import pytest
from msgspec.structs import replace

from nodeagent.model.cluster import ClusterNode
from nodeagent.model.upgrades import UPGRADE_LABEL, UpgradeEnding, UpgradePhase
from nodeagent.rules.upgrade_beginning import (
    SKIP_LABEL,
    STATE_LABEL,
    VersionNeed,
    find_hold,
    is_forbidden,
    list_obstacles,
)
from tests.support.repairs import NEW, OLD, make_upgrade

NEED = VersionNeed(mode="act", setting=NEW, installed_by="command", loaded=OLD, installed=OLD)


def mark(key: str, value: str) -> ClusterNode:
    return ClusterNode(name="n", uid="u", labels={key: value})


@pytest.mark.parametrize(
    ("need", "is_due", "words"),
    [
        (NEED, True, f"would upgrade the driver from {OLD} to {NEW}"),
        (replace(NEED, loaded=NEW), False, f"driver {NEW} is loaded, as wanted"),
        (replace(NEED, loaded=""), False, "no driver is loaded"),
        (replace(NEED, setting=""), False, "no version of the driver is wanted"),
        (replace(NEED, setting="installed"), False, "as wanted"),
        (replace(NEED, setting="installed", installed=NEW), True, "would upgrade"),
        (replace(NEED, setting="installed", installed=""), False, "no library is installed"),
    ],
)
def test_an_upgrade_is_due_when_another_version_is_wanted(need: VersionNeed, *, is_due: bool, words: str) -> None:
    """A restarted driver pod of the same version is no upgrade, and touches nobody."""
    assert need.is_due is is_due
    assert words in need.describe()


def test_what_is_due_and_free_begins() -> None:
    assert list(list_obstacles(NEED, None, ())) == []
    done = make_upgrade(UpgradePhase.RESTORE, ending=UpgradeEnding.DONE)
    assert list(list_obstacles(NEED, mark(STATE_LABEL, "upgrade-done"), (done,))) == []


@pytest.mark.parametrize(
    ("key", "value", "words"),
    [
        (UPGRADE_LABEL, "off", "=off stops it"),
        (UPGRADE_LABEL, "pause", "=pause stops it"),
        (SKIP_LABEL, "true", "leaves the node out"),
        (STATE_LABEL, "drain-required", "the operator's upgrade controller has the node"),
    ],
)
def test_marks_of_others_are_obeyed(key: str, value: str, words: str) -> None:
    (obstacle,) = list_obstacles(NEED, mark(key, value), ())
    assert words in obstacle
    assert words in find_hold(make_upgrade(), mark(key, value), (), is_released=False)
    assert is_forbidden(mark(key, value)) is (value == "off")
    assert not is_forbidden(None)


def test_an_upgrade_that_failed_is_not_repeated_before_a_person_allows_it() -> None:
    failed = make_upgrade(UpgradePhase.RESTORE, failure="exit code 1", ending=UpgradeEnding.FAILED)
    (obstacle,) = list_obstacles(NEED, None, (failed,))
    assert obstacle == f"upgrade 1 to {NEW} was not done: exit code 1; `nodeagent driver resume` allows another try"
    assert list(list_obstacles(NEED, None, (replace(failed, may_repeat=True),))) == []
    assert list(list_obstacles(replace(NEED, setting="590.1"), None, (failed,))) == []


def test_a_version_that_nobody_installs_is_waited_for() -> None:
    (obstacle,) = list_obstacles(replace(NEED, installed_by="nobody"), None, ())
    assert obstacle == f"nobody installs driver {NEW}: {OLD} is installed"
    (obstacle,) = list_obstacles(replace(NEED, mode="observe"), None, ())
    assert obstacle == "mode is observe"


def test_an_upgrade_under_way_is_held_by_people_and_repairs() -> None:
    assert find_hold(make_upgrade(), None, (), is_released=False) == ""
    assert "paused by alice" in find_hold(make_upgrade(paused_by="alice"), None, (), is_released=False)
    assert "fault session 3" in find_hold(make_upgrade(), None, (7, 3), is_released=False)
    assert "nodeagent release" in find_hold(make_upgrade(), None, (), is_released=True)
