from random import Random

import pytest

from nodeagent.core.life.backoff import Backoff, BackoffSettings, decide_delay
from nodeagent.core.life.budget import BudgetSettings, CrashBudget


class Highest(Random):
    """Draws the upper end, so that the shape of the pauses shows."""

    def uniform(self, a: float, b: float) -> float:
        return b


SETTINGS = BackoffSettings(first_seconds=1, factor=2, limit_seconds=10, jitter_low=0.5, stable_seconds=60)


@pytest.mark.parametrize(("failures", "upper"), [(1, 1), (2, 2), (4, 8), (5, 10), (100_000, 10)])
def test_delay_grows_to_its_limit(failures: int, upper: float) -> None:
    """Each failure in a row doubles the pause until the limit, which no count overflows."""
    assert decide_delay(SETTINGS, failures, Highest()) == upper


def test_jitter_covers_its_whole_range_and_nothing_else() -> None:
    """Pauses lie between the low share and the upper end, and near both ends."""
    rng = Random(1)
    drawn = [decide_delay(SETTINGS, 4, rng) for _ in range(1000)]
    assert 4 <= min(drawn) < 4.1
    assert 7.9 < max(drawn) <= 8


def test_stable_run_resets_the_growth() -> None:
    """A failure after a stable period counts as the first."""
    backoff = Backoff(SETTINGS, Highest())
    pauses = [backoff.delay_after_failure(ran_seconds=ran) for ran in (0, 59.9, 59.9, 60, 0)]
    assert pauses == [1, 2, 4, 1, 2]


def test_budget_covers_so_many_crashes_in_the_window() -> None:
    """The crash after the allowed ones is past the budget, and old ones are forgotten."""
    budget = CrashBudget(BudgetSettings(allowed=2, window_seconds=10))
    assert [budget.note_crash(now) for now in (0, 1, 2)] == [True, True, False]
    assert budget.crashes == 3
    assert budget.note_crash(11)
    assert budget.crashes == 2
