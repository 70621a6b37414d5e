"""The sections of a page that changed since a reader's last version; pure.

A page with several readers is rendered once, and all readers get the same bytes.
"""

import re
from collections.abc import Callable, Iterator

from msgspec import json

from nodeagent.components.web.page.overview import Page, Steps, finish

AGES = re.compile(r"(<time data-since[^>]*>)[^<]*")
"""Ages grow in the reader's own clock and are no change."""


class LivePage:
    """The newest rendering of an address, and the last change of each section."""

    def __init__(self, page: Page, epoch: str) -> None:
        """`epoch` tells the versions of this object from versions of any other."""
        self._epoch, self._number = epoch, 1
        self.readers = 0
        self.just_loaded = True
        self.page = page
        self._stable = _strip_ages(page)
        self._changed_at = dict.fromkeys(page.sections, self._number)
        self._rendered: dict[int, bytes] = {}
        """By the version seen; most readers have seen the same version, and get the same bytes."""

    @property
    def version(self) -> str:
        """The version of a reader with all changes so far."""
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
        """The event that brings a reader up to date; an unknown version means the whole page."""
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
"""How many loaded pages are kept for readers who may be about to follow them."""


class LivePages:
    """The pages with readers now, and for a moment pages just loaded."""

    def __init__(self, render: Callable[[str], Steps], epoch: str) -> None:
        """`render` makes the page at an address, step by step."""
        self._render, self._epoch = render, epoch
        self._made = 0
        self._pages: dict[str, LivePage] = {}

    def load(self, path: str) -> LivePage | None:
        """The page at this address now; `None` without a page."""
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
        """The page for a reader until `leave`."""
        live = self._pages.get(path) or self.load(path)
        if live is not None:
            live.readers += 1
        return live

    def leave(self, path: str) -> None:
        """Count a reader less."""
        self._pages[path].readers -= 1

    def update(self) -> Iterator[None]:
        """Render all pages with readers, and drop pages not followed; yields where other tasks may run."""
        for path, live in list(self._pages.items()):
            if self._pages.get(path) is not live:
                continue  # pushed out, or replaced, by a page loaded while others were rendered
            if live.readers:
                page = yield from self._render(path)
                assert page is not None, "an address that was a page stays one"
                if page.time_seconds >= live.page.time_seconds:  # else the page was loaded anew meanwhile
                    live.update(page)
            elif live.just_loaded:
                live.just_loaded = False
            else:
                del self._pages[path]
