"""How many connections are taken under which limit of descriptors."""

import resource

from hypothesis import given
from hypothesis import strategies as st

from nodeagent.edge.http.capacity import FEWEST, KEPT_BACK, decide_capacity, read_descriptor_limit


def test_the_settings_hold_where_there_is_room() -> None:
    assert decide_capacity(4096, 256, 128) == (256, 128, "")
    assert decide_capacity(1024, 16, 128) == (16, 16, "")


def test_a_low_limit_wins_and_says_so() -> None:
    """The person who reads it learns which number would do."""
    capacity = decide_capacity(256, 256, 256)
    assert (capacity.total, capacity.each) == (128, 64)
    assert "may open 256 files: 128 connections" in capacity.shortage
    assert f"{256 + KEPT_BACK} files would do" in capacity.shortage


@given(st.integers(0, 100_000), st.integers(8, 65536), st.integers(4, 65536))
def test_descriptors_are_kept_back_whatever_is_wished(descriptors: int, total: int, each: int) -> None:
    """All connections leave the agent what it needs, and a few are taken even where it cannot be left."""
    capacity = decide_capacity(descriptors, total, each)
    assert FEWEST <= capacity.total <= total
    assert capacity.total + KEPT_BACK <= descriptors or capacity.total == FEWEST
    assert 1 <= capacity.each <= capacity.total
    assert bool(capacity.shortage) == (capacity.total < total)


def test_the_limit_is_that_of_this_process() -> None:
    """The soft one: that is what an `open` fails on."""
    assert read_descriptor_limit() == resource.getrlimit(resource.RLIMIT_NOFILE)[0]
