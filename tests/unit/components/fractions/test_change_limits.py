"""Limits of a running container are changed in place, or refused with the reason."""

import pytest
from msgspec.structs import replace

from nodeagent.components.fractions.bind import change_fractions
from nodeagent.model.errors import ControlRefused
from tests.support.fractions import make_bound, part
from tests.support.placement import GIB


def test_limits_are_changed_in_place() -> None:
    """What is not named stays; the larger limit follows upwards and never falls below the part."""
    some = replace(make_bound(1, (1, 2), part(0, 30, 8)), core_limit=40)
    assert change_fractions(some, 20, None) == replace(some, parts=(part(0, 20, 8),))
    assert change_fractions(some, None, GIB) == replace(some, parts=(part(0, 30, 1),))
    assert change_fractions(some, 60, None).core_limit == 60
    assert change_fractions(replace(some, core_limit=None), 60, None).core_limit is None


@pytest.mark.parametrize(
    ("cores", "memory", "why"), [(0, None, "0 cores"), (100, None, "100 cores"), (None, 0, "0 bytes")]
)
def test_limits_that_make_no_sense_are_refused(cores: int | None, memory: int | None, why: str) -> None:
    """And whole GPUs have none."""
    with pytest.raises(ControlRefused, match=why):
        change_fractions(make_bound(1, (1,), part(0, 30, 8)), cores, memory)
    with pytest.raises(ControlRefused, match="whole GPUs"):
        change_fractions(make_bound(1, (1,), part(0, 100, 32)), 10, None)
