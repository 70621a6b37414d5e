"""How many GPUs a node should have, by its configuration or by its label."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from nodeagent.components.inventory.expected import COUNT_MAX, LABEL, Expectation, decide_expectation


@pytest.mark.parametrize(
    ("configured", "labels", "count", "by"),
    [
        (None, {}, None, ""),
        (None, {LABEL: "8"}, 8, f"the node label {LABEL}"),
        (None, {LABEL: "0"}, 0, f"the node label {LABEL}"),
        (4, {}, 4, "`gpus.expected`"),
        (4, {LABEL: "8"}, 4, "`gpus.expected`"),
        (0, {LABEL: "8"}, 0, "`gpus.expected`"),
    ],
)
def test_the_configuration_outranks_the_label(
    configured: int | None, labels: dict[str, str], count: int | None, by: str
) -> None:
    """Whoever says so is named, so that people know what to correct."""
    by_label = int(labels[LABEL]) if labels else None
    assert decide_expectation(configured, labels, 3) == Expectation(count=count, by=by, by_label=by_label)


@pytest.mark.parametrize(
    ("configured", "remembered", "count", "by"),
    [(None, 8, 8, f"the node label {LABEL} as it was last seen"), (None, None, None, ""), (4, 8, 4, "`gpus.expected`")],
)
def test_the_label_holds_as_it_was_last_seen_until_it_is_seen_again(
    configured: int | None, remembered: int | None, count: int | None, by: str
) -> None:
    """Without an API server; whose word it is says that it may be of long ago."""
    assert decide_expectation(configured, None, remembered) == Expectation(count=count, by=by, by_label=remembered)


@pytest.mark.parametrize("text", ["", "eight", "-1", "8.0", "1e3", " 8", "٨", "²", str(COUNT_MAX + 1), "9" * 63])
def test_a_label_that_is_no_count_is_told_and_not_followed(text: str) -> None:
    """Also where the configuration makes it unnecessary: nobody should believe that it has an effect."""
    found = decide_expectation(None, {LABEL: text})
    assert found.count is None
    assert repr(text) in found.problem
    assert decide_expectation(2, {LABEL: text}).problem == found.problem


@given(text=st.text(max_size=63))
def test_no_label_makes_it_fail(text: str) -> None:
    """Whatever somebody writes there, it is a count or a problem."""
    found = decide_expectation(None, {LABEL: text})
    assert (found.count is None) is bool(found.problem)
    assert found.count is None or 0 <= found.count <= COUNT_MAX
