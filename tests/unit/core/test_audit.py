"""What becomes of a change on its way to whoever keeps it."""

import pytest

from nodeagent.core.log.audit import CUT_SHORT, DETAIL_MAX, DONE, Change, keeping, noting


class Refused(Exception):
    """What changes nothing."""


def test_a_change_is_noted_with_how_it_ended() -> None:
    """Done, failed for a reason, or cut short."""
    kept: list[Change] = []
    with keeping(kept.append):
        with noting("file", "/etc/x", "write it"):
            pass
        with pytest.raises(Refused), noting("file", "/etc/x", "write it"):
            raise Refused("no space")
        with pytest.raises(KeyboardInterrupt), noting("gpu", "GPU 0", "reset it", "by hand"):
            raise KeyboardInterrupt
    assert [each.outcome for each in kept] == [DONE, "Refused: no space", CUT_SHORT]
    assert (kept[2].kind, kept[2].name, kept[2].action, kept[2].detail) == ("gpu", "GPU 0", "reset it", "by hand")
    assert kept[0].at > 0


def test_a_long_detail_is_cut() -> None:
    """What fits is whole."""
    kept: list[Change] = []
    with keeping(kept.append):
        for length in (DETAIL_MAX, DETAIL_MAX + 1):
            with noting("kubernetes", "/x", "y", "z" * length):
                pass
    assert [len(each.detail) for each in kept] == [DETAIL_MAX, DETAIL_MAX]
    assert [each.detail[-1] for each in kept] == ["z", "…"]


def test_nothing_is_kept_outside_of_the_block() -> None:
    """Of a process that has no audit log, no change is kept."""
    kept: list[Change] = []
    with keeping(kept.append):
        pass
    with noting("file", "/etc/x", "write it"):
        pass
    assert kept == []
