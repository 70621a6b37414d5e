"""The shell blocks of our pages, each with the heading it stands under."""

import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Final

ROOT: Final = Path(__file__).resolve().parents[3]
PAGES: Final = (ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md")))
_FENCE: Final = re.compile(r"^ *```(\w*)\n(.*?)^ *```", re.MULTILINE | re.DOTALL)
_HEADING: Final = re.compile(r"^#+ (.*)$", re.MULTILINE)
_SHELL: Final = frozenset({"sh", "console", "bash"})


@dataclass(frozen=True, slots=True)
class Block:
    """One fenced block of commands."""

    page: str
    heading: str
    number: int
    """Which of its heading's blocks, from 1."""
    text: str

    @property
    def name(self) -> str:
        return f"{self.page}: {self.heading}, {self.number}"

    @property
    def commands(self) -> list[str]:
        """Its lines, without comments at their end and with continued ones joined."""
        joined = self.text.replace("\\\n", " ")
        return [line for line in map(str.strip, joined.splitlines()) if line and not line.startswith("#")]


def find_blocks(page: Path) -> Iterator[Block]:
    """Every shell block of a page, in order."""
    text = page.read_text(encoding="utf-8")
    headings = [(found.start(), found[1]) for found in _HEADING.finditer(_blank_fences(text))]
    counted: dict[str, int] = {}
    for found in _FENCE.finditer(text):
        if found[1] in _SHELL:
            heading = [name for place, name in headings if place < found.start()][-1].replace("`", "")
            counted[heading] = counted.get(heading, 0) + 1
            yield Block(str(page.relative_to(ROOT)), heading, counted[heading], found[2])


def find_block(page: str, heading: str, number: int = 1) -> Block:
    return next(block for block in find_blocks(ROOT / page) if (block.heading, block.number) == (heading, number))


def _blank_fences(text: str) -> str:
    """A comment in a block is no heading."""
    return _FENCE.sub(lambda found: " " * len(found[0]), text)
