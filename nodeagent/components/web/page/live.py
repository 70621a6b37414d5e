"""Which parts of a page changed since a reader last saw them; pure.

A page that several people read is rendered once, and all of them get the same bytes.
"""

import re
from collections.abc import Callable, Iterator

from msgspec import json

from nodeagent.components.web.page.overview import Page, Steps, finish

AGES = re.compile(r"(<time data-since[^>]*>)[^<]*")
"""Ages grow in the reader's own clock and are no change."""


class LivePage:
    """The newest rendering of one address, and when each part of it last changed."""

    def __init__(self, page: Page, epoch: str) -> None:
        """`epoch` tells the versions of this object from those of any other."""
        self._epoch, self._number = epoch, 1
        self.readers = 0
        self.just_loaded = True
        self.page = page
        self._stable = _strip_ages(page)
        self._changed_at = dict.fromkeys(page.sections, self._number)
        self._rendered: dict[int, bytes] = {}
        """By what a reader has seen; most have seen the same, and get the same bytes."""

    @property
    def version(self) -> str:
        """What a reader has seen who has everything so far."""
        return f"{self._epoch}-{self._number}"

    def update(self, page: Page) -> None:
        """Take in a new rendering."""
        stable = _strip_ages(page)
        changed = [name for name, html in stable.items() if self._stable.get(name) != html]
        if changed:
            self._number += 1
            self._changed_at |= dict.fromkeys(changed, self._number)
        self._rendered = {}
        self.page, self._stable = page, stable

    def render_since(self, version: str) -> bytes:
        """The event that brings a reader up to date; an unknown version means everything."""
        epoch, _, number = version.rpartition("-")
        seen = int(number) if epoch == self._epoch and number.isascii() and number.isdigit() else 0
        if seen not in self._rendered:
            sections = {name: html for name, html in self.page.sections.items() if self._changed_at[name] > seen}
            update = {"time": self.page.time_seconds, "title": self.page.title, "sections": sections}
            event = b"id: %s\nevent: sections\ndata: %s\n\n" % (self.version.encode(), json.encode(update))
            self._rendered[seen] = event
        return self._rendered[seen]


def _strip_ages(page: Page) -> dict[str, str]:
    return {name: AGES.sub(r"\1", html) for name, html in page.sections.items()}


UNREAD_MAX = 16
"""Pages kept for readers who have just loaded them and may be about to follow them."""


class LivePages:
    """The pages that somebody reads now, and for a moment those that somebody has just loaded."""

    def __init__(self, render: Callable[[str], Steps], epoch: str) -> None:
        """`render` makes the page at an address, step by step."""
        self._render, self._epoch = render, epoch
        self._made = 0
        self._pages: dict[str, LivePage] = {}

    def load(self, path: str) -> LivePage | None:
        """The page at this address as it is now; `None` where there is none."""
        page = finish(self._render(path))
        if page is None:
            return None
        live = self._pages.get(path)
        if live is not None:
            live.update(page)
            live.just_loaded = True
            return live
        self._made += 1
        live = LivePage(page, f"{self._epoch}.{self._made}")
        if sum(not one.readers for one in self._pages.values()) >= UNREAD_MAX:
            self._pages = {where: one for where, one in self._pages.items() if one.readers}
        self._pages[path] = live
        return live

    def follow(self, path: str) -> LivePage | None:
        """The page for a reader who stays until it leaves."""
        live = self._pages.get(path) or self.load(path)
        if live is not None:
            live.readers += 1
        return live

    def leave(self, path: str) -> None:
        """One reader less."""
        self._pages[path].readers -= 1

    def update(self) -> Iterator[None]:
        """Render all that are read, and forget what nobody came to follow; yields where others may have their turn."""
        for path, live in list(self._pages.items()):
            if self._pages.get(path) is not live:
                continue  # a page that was loaded while others were rendered has pushed it out, or taken its place
            if live.readers:
                page = yield from self._render(path)
                assert page is not None, "an address that was a page stays one"
                if page.time_seconds >= live.page.time_seconds:  # else somebody loaded it anew meanwhile
                    live.update(page)
            elif live.just_loaded:
                live.just_loaded = False
            else:
                del self._pages[path]
