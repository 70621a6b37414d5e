"""News in a daemon's log: everything but the traces of the agent's own questions.

Drivers 535 and 550 write four lines for a question: connection, front end, command, end; and the answer as a line more.
"""

import re
from collections.abc import Collection, Iterable, Sequence
from typing import Final

_HEAD: Final = re.compile(r"\[[^\]]*\] ")
_COMMAND: Final = "Cmd:"
_TRACE: Final = re.compile(
    r"Accepting connection\.\.\.|NEW UI|UI closed|Cmd:get_.*|[0-9]+(\.[0-9]+)?[GM]?"
    r"|No default pinned memory limit set for the device!"
)
"""The traces of every question, by any client: a mere question changes nothing."""


LOG_LINES_MAX: Final = 20
"""The most lines repeated after one poll; any client with access to the pipe can make a daemon write without end."""
TOLD_LETTERS: Final = 200


def find_news(lines: Iterable[str], own: Collection[str]) -> tuple[str, ...]:
    """The lines not caused by a question; `own` are the agent's commands that change something."""
    return tuple(line for line in lines if line.strip() and not _is_known(_HEAD.sub("", line, count=1).strip(), own))


def choose_lines(news: Sequence[str]) -> tuple[tuple[str, ...], int]:
    """The lines to repeat, shortened, and the number of lines left out."""
    return tuple(line[:TOLD_LETTERS] for line in news[:LOG_LINES_MAX]), max(0, len(news) - LOG_LINES_MAX)


def has_orders(news: Iterable[str]) -> bool:
    """Whether another client has given the daemon an order: its limits may have changed."""
    return any(_HEAD.sub("", line, count=1).startswith(_COMMAND) for line in news)


def _is_known(text: str, own: Collection[str]) -> bool:
    return _TRACE.fullmatch(text) is not None or (text.startswith(_COMMAND) and text.removeprefix(_COMMAND) in own)
