"""Numbers and misspelt names are in the words that people read everywhere."""

import pytest

from nodeagent.model.errors import FaultUnknown
from nodeagent.model.wording import find_nearest, render_age, render_bytes, suggest


def test_the_nearest_name_is_found_whatever_its_case_and_dashes() -> None:
    """What people overlook makes no difference; what is far off is no suggestion."""
    assert find_nearest("Mig_Strategy", ("migStrategy", "other")) == "migStrategy"
    assert find_nearest("zzz", ("migStrategy",)) is None
    assert find_nearest("", ("a",)) is None


def test_a_suggestion_is_a_question() -> None:
    """To be put behind any refusal."""
    assert suggest("statsu", ("status", "top")) == "; did you mean 'status'?"
    assert suggest("zzz", ("status",)) == ""
    assert str(FaultUnknown("xdi", ("xid", "lost"))).endswith("; did you mean 'xid'?")


@pytest.mark.parametrize(
    ("count", "text"),
    [
        (0, "0 B"),
        (1023, "1023 B"),
        (1024, "1 KiB"),
        (1536, "1.5 KiB"),
        (536870912, "512 MiB"),
        (85520809984, "79.6 GiB"),
        (1 << 40, "1 TiB"),
        (3 << 50, "3072 TiB"),
    ],
)
def test_bytes_use_binary_units(count: int, text: str) -> None:
    """Memory is counted in powers of two, with one decimal where it tells something."""
    assert render_bytes(count) == text


@pytest.mark.parametrize(
    ("seconds", "text"),
    [
        (-5, "0 s"),
        (0.9, "0 s"),
        (59, "59 s"),
        (60, "1 min"),
        (250, "4 min 10 s"),
        (3600, "1 h"),
        (7500, "2 h 5 min"),
        (86400, "1 d"),
        (788400, "9 d 3 h"),
    ],
)
def test_ages_name_the_two_largest_units(seconds: float, text: str) -> None:
    """Nobody needs the seconds of a nine-day outage."""
    assert render_age(seconds) == text
