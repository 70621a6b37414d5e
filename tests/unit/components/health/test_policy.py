"""What configuration makes of an XID."""

import pytest

from nodeagent.components.health.evidence.xids import CATALOGUE, find_xid
from nodeagent.components.health.policy import PLUGIN_IGNORES, apply_policy
from nodeagent.config.sections.hardware import HealthSettings
from nodeagent.model.health import ReturnRule, Verdict

HEALTHY, SUSPECT, UNHEALTHY = Verdict.HEALTHY, Verdict.SUSPECT, Verdict.UNHEALTHY


def verdict(number: int, **settings: object) -> Verdict:
    return apply_policy(find_xid(number), HealthSettings(**settings)).verdict  # type: ignore[arg-type]  # rows of a table


def test_without_policy_the_catalogue_stands() -> None:
    assert all(apply_policy(entry, HealthSettings()) is entry for entry in CATALOGUE.values())


def test_plugin_profile_ignores_six_and_takes_all_others() -> None:
    """As NVIDIA's device plugin does, but for numbers in which there is no fault at all."""
    verdicts = {number: verdict(number, profile="plugin") for number in CATALOGUE}
    healthy = {number for number, one in verdicts.items() if one is HEALTHY}
    assert healthy == PLUGIN_IGNORES | {14, 106, 107, 154, 162}
    assert set(verdicts.values()) == {HEALTHY, UNHEALTHY}


@pytest.mark.parametrize(
    ("disabled", "enabled", "number", "expected"),
    [
        ((), (), 48, UNHEALTHY),
        (("48", "63"), (), 48, HEALTHY),
        (("all",), (), 79, HEALTHY),
        (("xids",), (), 79, HEALTHY),
        (("0",), (), 79, HEALTHY),
        ((), ("13",), 13, UNHEALTHY),
        ((), ("13",), 31, HEALTHY),
        (("48",), ("all",), 13, UNHEALTHY),
        (("48",), ("all",), 48, UNHEALTHY),
        (("all",), ("48", "79"), 79, UNHEALTHY),
        (("all",), ("48", "79"), 74, HEALTHY),
    ],
)
def test_lists_of_the_device_plugin_mean_what_its_documentation_says(
    disabled: tuple[str, ...], enabled: tuple[str, ...], number: int, expected: Verdict
) -> None:
    """Enabled is stronger than disabled, and both are stronger than the profile."""
    assert verdict(number, profile="plugin", disable_xids=disabled, enable_xids=enabled) is expected


@pytest.mark.parametrize(
    ("by_name", "number", "expected"),
    [
        ({"13": "suspect"}, 13, SUSPECT),
        ({"memory": "ignore"}, 48, HEALTHY),
        ({"memory": "ignore", "48": "suspect"}, 48, SUSPECT),
        ({"memory": "ignore"}, 79, UNHEALTHY),
        ({"unknown": "unhealthy"}, 4711, UNHEALTHY),
    ],
)
def test_policy_by_number_beats_policy_by_class(by_name: dict[str, str], number: int, expected: Verdict) -> None:
    """The more exact name wins; what is not named keeps the profile's verdict."""
    assert verdict(number, xid_policy=by_name) is expected


def test_lists_beat_the_policy() -> None:
    """A disabled XID is ignored whatever else is said."""
    assert verdict(48, xid_policy={"48": "unhealthy"}, disable_xids=("48",)) is HEALTHY


@pytest.mark.parametrize(("number", "rule"), [(13, "P"), (37, "L"), (48, "R"), (92, "W")])
def test_what_policy_takes_out_has_a_way_back(number: int, rule: str) -> None:
    """A program's own fault ends with the program; a known way back is kept."""
    entry = apply_policy(find_xid(number), HealthSettings(enable_xids=("all",)))
    assert (entry.verdict, entry.rule) == (UNHEALTHY, ReturnRule(rule))


def test_ignored_xids_do_not_add_up() -> None:
    """What is ignored once is ignored however often it comes."""
    assert apply_policy(find_xid(8), HealthSettings(disable_xids=("8",))).repeat is None


@pytest.mark.parametrize("number", [14, 106, 107, 154, 162])
def test_numbers_without_a_fault_never_act(number: int) -> None:
    """Whoever injects a number or changes an action has no say in health."""
    assert verdict(number, enable_xids=("all",)) is HEALTHY
