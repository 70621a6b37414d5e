"""Chains of events in a terminal; pure. The same chains as on the status page."""

from collections.abc import Sequence
from datetime import datetime

from nodeagent.cli.answers.table import clean, paint, shorten
from nodeagent.components.web.api.records import EventRecord
from nodeagent.components.web.page.chains import Chain, find_about
from nodeagent.model.wording import render_took

MARGIN = 19
"""As wide as a date and a time of day."""
FOLLOWED_MAX = 4096
"""The most events with a remembered depth."""


def render_chains(chains: Sequence[Chain], *, width: int, colour: bool) -> list[str]:
    """The newest chain last, where users look in a terminal."""
    lines: list[str] = []
    was_before = False
    for chain in reversed(chains):
        if was_before and not chain.is_before_restart:
            lines.append(paint(f"{'':>{MARGIN}}  the agent was restarted", "dim", colour=colour))
        was_before = chain.is_before_restart
        began = chain.links[0].time_seconds
        for link in chain.links:
            margin = render_time(began) if not link.depth else f"+{render_took(link.time_seconds - began)}"
            text = shorten(f"{'  ' * link.depth}{clean(link.text)}", width - MARGIN - 2)
            lines.append(f"{paint(f'{margin:>{MARGIN}}', 'dim', colour=colour)}  {text}")
        if chain.left_out:
            lines.append(f"{'':>{MARGIN}}  and {chain.left_out} more")
    return lines


def render_time(seconds: float) -> str:
    """A time in this terminal's own time zone."""
    return f"{datetime.fromtimestamp(seconds).astimezone():%Y-%m-%d %H:%M:%S}"


class FollowedEvents:
    """Events as they arrive: each indented by the number of its causes."""

    def __init__(self, own: frozenset[str] | None) -> None:
        """`own` are the names of the wanted GPU; `None` for all GPUs."""
        self._own = own
        self._depths: dict[int, int] = {}
        self._about: set[int] = set()

    def is_about(self, event: EventRecord) -> bool:
        """Whether the event names the GPU, or follows from an event about the GPU."""
        if self._own is None:
            return True
        if event.cause in self._about or find_about([(event.seq, event.value)], self._own):
            self._about.add(event.seq)
        return event.seq in self._about

    def render(self, event: EventRecord, *, width: int) -> str:
        """A line; empty for an event without text, whose depth goes to its followers."""
        before = self._depths.get(event.cause, -1) if event.cause is not None else -1
        self._depths[event.seq] = before + 1 if event.text else before
        if len(self._depths) > FOLLOWED_MAX:
            del self._depths[next(iter(self._depths))]
        if not event.text or not self.is_about(event):
            return ""
        return shorten(f"{render_time(event.time_seconds)}  {'  ' * (before + 1)}{clean(event.text)}", width)
