"""News: the newest envelope that was not acted upon yet."""

from nodeagent.core.channels.envelope import Envelope
from nodeagent.core.channels.news import News


def envelope(seq: int) -> Envelope[str]:
    return Envelope(value="", key="", seq=seq, time=0.0, source="test")


def test_the_newest_is_news_once() -> None:
    news, old, new = News(), envelope(3), envelope(5)
    assert news.take(old, new, None) is new
    assert news.take(old, new) is None
    assert news.take(envelope(6), new) is not None


def test_nothing_is_no_news() -> None:
    """A part that looks before anybody has said anything has no cause."""
    assert News().take(None, None) is None
