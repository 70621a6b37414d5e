"""What is worked out ahead is worked out once, and fails only where it is wanted."""

import pytest

from nodeagent.model.prepared import Prepared


def test_it_is_worked_out_ahead_or_when_wanted() -> None:
    """Either way there is one value."""
    made: list[int] = []

    def make() -> int:
        made.append(len(made))
        return 7

    ahead, late = Prepared(make), Prepared(make)
    ahead.prepare()
    assert made == [0]
    assert ahead.take() == 7
    assert made == [0]
    assert late.take() == 7
    assert made == [0, 1]


def test_nothing_is_a_value_too() -> None:
    """What comes out as None is not worked out again."""
    made: list[int] = []
    nothing = Prepared(lambda: made.append(1))
    nothing.prepare()
    assert nothing.take() is None
    assert made == [1]


def test_a_failure_is_heard_where_the_value_is_wanted() -> None:
    """Working it out ahead never fails; taking it does."""

    def fail() -> int:
        raise ValueError("cannot be worked out")

    failing = Prepared(fail)
    failing.prepare()
    with pytest.raises(ValueError, match="cannot be worked out"):
        failing.take()
