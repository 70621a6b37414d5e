"""Ratios between two trees: what is beyond noise is said, what may be noise is not."""

import pytest

from tests.bench.compare import Ratio, Rows, join, render


def make_rows(**medians: float) -> Rows:
    return {name: {"name": name, "unit": "ms", "p50": median} for name, median in medians.items()}


@pytest.mark.parametrize(
    ("turns", "verdict"),
    [
        ((1.2, 1.21, 1.19, 1.2, 1.22), "slower"),
        ((0.8, 0.82, 0.79, 0.81, 0.8), "faster"),
        ((1.2, 1.3, 0.99, 1.2, 1.2), ""),
        ((1.01, 1.5, 1.9, 1.02, 1.03), ""),
        ((1.2, 1.2, 1.2, 1.2), ""),
    ],
)
def test_only_a_steady_difference_is_called_one(turns: tuple[float, ...], verdict: str) -> None:
    """All turns agree, by more than they differ among themselves, and there are enough of them."""
    assert Ratio("start", "ms", 1.0, 1.0, turns).verdict == verdict


def test_rows_of_one_tree_alone_are_left_out() -> None:
    """A row that the other commit does not measure has no ratio."""
    ratios = join([(make_rows(start=30.0, new=1.0), make_rows(start=20.0)) for _ in range(2)])
    assert [(ratio.name, ratio.turns) for ratio in ratios] == [("start", (1.5, 1.5))]


def test_a_row_that_was_nothing_has_no_ratio() -> None:
    """Nothing divides by zero."""
    assert join([(make_rows(start=30.0), make_rows(start=0.0))]) == []


def test_the_table_names_both_and_the_spread() -> None:
    """What people read holds the medians, the ratio, and how far the turns were apart."""
    text = render([Ratio("exec to Register", "ms", 300.0, 200.0, (1.4, 1.5, 1.6, 1.5, 1.5))], "abcdef0123456789")
    assert "abcdef012345" in text
    assert text.splitlines()[1].split() == [
        *("exec", "to", "Register", "ms", "300.00", "200.00", "1.50", "1.40..1.60", "slower")
    ]
