"""How the requests of a fleet are counted."""

from collections import Counter

from tests.bench.whole.fleet import count_writes, diff, list_totals


def test_a_watch_that_is_begun_anew_is_no_request_of_that_minute() -> None:
    """It is counted for the day; what was asked before counts no more."""
    before = (Counter(GET=2, WATCH=1, PATCH=2), Counter(GET=2, WATCH=1, PATCH=2))
    after = (Counter(GET=2, WATCH=2, PATCH=2), Counter(GET=3, WATCH=1, PATCH=4, POST=1))
    assert diff(after, before) == [0.0, 4.0]
    assert list_totals(before) == [5.0, 5.0]
    assert [count_writes(each) for each in after] == [2, 5]
