"""Whoever hears of an error may put another in its place, and nothing else changes."""

import pytest

from nodeagent.model.errors import Hearing


def test_errors_are_heard_and_go_on() -> None:
    """Each once, and none where there is none."""
    heard: list[Exception] = []
    hearing = Hearing(ValueError, heard.append)
    with hearing:
        pass
    error = ValueError("no")
    with pytest.raises(ValueError, match="no"), hearing:
        raise error
    assert heard == [error]


def test_another_error_may_take_its_place() -> None:
    """It says what it comes from."""

    def hear(error: Exception) -> None:
        raise KeyError("instead") from error

    with pytest.raises(KeyError, match="instead") as caught, Hearing(ValueError, hear):
        raise ValueError("no")
    assert isinstance(caught.value.__cause__, ValueError)


def test_what_ends_everything_is_no_error() -> None:
    """A cancellation or an interrupt goes by unheard, and so does an error of another kind."""
    heard: list[Exception] = []
    with pytest.raises(KeyboardInterrupt), Hearing(Exception, heard.append):
        raise KeyboardInterrupt
    with pytest.raises(KeyError), Hearing(ValueError, heard.append):
        raise KeyError
    assert heard == []
