"""Whether two patterns of paths can mean the same path."""

from fnmatch import fnmatchcase

import pytest
from hypothesis import given
from hypothesis import strategies as st

from nodeagent.config.globs import is_pattern, overlap


@pytest.mark.parametrize(
    ("left", "right", "is_same"),
    [
        ("/dev/kvm", "/dev/kvm", True),
        ("/dev/kvm", "/dev/kv", False),
        ("/dev/kv?", "/dev/kvm", True),
        ("/dev/*", "/dev/kvm", True),
        ("/dev/*", "/dev/net/tun", False),
        ("/dev/a*", "/dev/*b", True),
        ("/dev/a*c", "/dev/ab*d", False),
        ("/dev/x[0-9]", "/dev/x[5-7]", True),
        ("/dev/x[0-4]", "/dev/x[5-7]", False),
        ("/dev/x[!0-9]", "/dev/x[0-9]", False),
        ("/dev/x[0-9]", "/dev/x[!0-8]", True),
        ("/dev/x[!a]", "/dev/x[!b]", True),
        ("/dev/x[]]", "/dev/x]", True),
        ("/dev/x[", "/dev/x[", True),
        ("/dev/x[!]]", "/dev/x]", False),
        ("/dev/x[a-]", "/dev/x-", True),
        ("/dev/x*", "/dev/x", True),
        ("/dev/**", "/dev/x", True),
    ],
)
def test_patterns_overlap_where_a_path_matches_both(left: str, right: str, *, is_same: bool) -> None:
    """Whichever comes first."""
    assert overlap(left, right) is is_same
    assert overlap(right, left) is is_same


PARTS = st.text(alphabet="ab*?", max_size=5)


@given(PARTS, PARTS, st.text(alphabet="ab", max_size=6))
def test_a_path_that_matches_both_is_never_missed(left: str, right: str, path: str) -> None:
    if fnmatchcase(path, left) and fnmatchcase(path, right):
        assert overlap(left, right)


def test_a_pattern_is_told_from_a_path() -> None:
    assert [is_pattern(path) for path in ("/dev/x", "/dev/*", "/dev/?", "/dev/[a]")] == [False, True, True, True]
