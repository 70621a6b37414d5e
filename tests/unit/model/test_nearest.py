"""Misspelt names."""

from nodeagent.model.errors import FaultUnknown
from nodeagent.model.wording import find_nearest, suggest


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
