"""Others are paused by the labels that clusters know, and have theirs back as they were."""

import pytest

from nodeagent.components.mig.clients import list_applications, list_paused, list_returns, plan_pause
from nodeagent.model.cluster import DEPLOY_LABEL, PAUSED_FOR_MIG

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
    assert plan_pause({EXPORTER: value, "other": "true"}) == ({EXPORTER: value} if is_paused else {})


def test_pods_are_waited_for_where_it_is_known_which_they_are() -> None:
    """Those of `client` have no label of their own."""
    assert list_applications({EXPORTER: "true", CLIENT: "true"}) == ("nvidia-dcgm-exporter",)


def test_each_has_back_what_it_had() -> None:
    """Not what somebody has set meanwhile; with another pause on top it is waited for."""
    owed = {EXPORTER: "true", CLIENT: "yes", f"{DEPLOY_LABEL}nvsm": "true"}
    labels = {EXPORTER: PAUSED_FOR_MIG, CLIENT: f"{PAUSED_FOR_MIG}_paused-for-driver-upgrade"}
    assert list_paused(owed, labels) == {EXPORTER: "true", CLIENT: "yes"}
    assert list_returns(list_paused(owed, labels), labels) == {EXPORTER: "true"}
    assert list_paused({EXPORTER: "true"}, {EXPORTER: "false"}) == {}
