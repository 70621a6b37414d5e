"""Others are paused by the labels that clusters know, and have theirs back as they were."""

import pytest

from nodeagent.model.cluster import DEPLOY_LABEL, PAUSED_FOR_MIG
from nodeagent.rules.paused_clients import MIG_PAUSE, UPGRADE_PAUSE

EXPORTER, CLIENT = f"{DEPLOY_LABEL}dcgm-exporter", f"{DEPLOY_LABEL}client"


@pytest.mark.parametrize(
    ("value", "is_paused"),
    [
        ("true", True),
        ("pre-installed", True),
        ("false", False),
        ("", False),
        ("paused-for-driver-upgrade", False),
        (PAUSED_FOR_MIG, False),
    ],
)
def test_only_what_is_on_is_paused(value: str, is_paused: bool) -> None:
    """Neither what somebody has switched off, nor what is paused already; no label is made for it."""
    assert MIG_PAUSE.plan({EXPORTER: value, "other": "true"}) == ({EXPORTER: value} if is_paused else {})


def test_pods_are_waited_for_where_it_is_known_which_they_are() -> None:
    """Those of `client` have no label of their own."""
    assert MIG_PAUSE.list_applications({EXPORTER: "true", CLIENT: "true"}) == ("nvidia-dcgm-exporter",)


def test_each_has_back_what_it_had() -> None:
    """Not what somebody has set meanwhile; with another pause on top it is waited for."""
    owed = {EXPORTER: "true", CLIENT: "yes", f"{DEPLOY_LABEL}nvsm": "true"}
    labels = {EXPORTER: PAUSED_FOR_MIG, CLIENT: f"{PAUSED_FOR_MIG}_paused-for-driver-upgrade"}
    assert MIG_PAUSE.list_paused(owed, labels) == {EXPORTER: "true", CLIENT: "yes"}
    assert MIG_PAUSE.list_returns(MIG_PAUSE.list_paused(owed, labels), labels) == {EXPORTER: "true"}
    assert MIG_PAUSE.list_paused({EXPORTER: "true"}, {EXPORTER: "false"}) == {}


def test_an_upgrade_pauses_more_than_a_change_of_mig_devices_and_each_reason_restores_its_own() -> None:
    labels = {f"{DEPLOY_LABEL}{job}": "true" for job in ("operator-validator", "dcgm", "container-toolkit", "driver")}
    paused = UPGRADE_PAUSE.plan(labels)
    assert list(paused) == [f"{DEPLOY_LABEL}dcgm", f"{DEPLOY_LABEL}operator-validator"]
    now = dict.fromkeys(paused, UPGRADE_PAUSE.value)
    assert MIG_PAUSE.plan(now) == {}
    assert UPGRADE_PAUSE.list_returns(paused, now) == paused
    assert MIG_PAUSE.list_returns(paused, now) == {}
