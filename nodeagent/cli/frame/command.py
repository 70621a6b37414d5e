"""A command as a value, from which the parser, the help and the reference page are made."""

from collections.abc import Callable
from typing import Any

from msgspec import Struct

from nodeagent.cli.frame.exit_codes import ALWAYS, ExitCode


class Argument(Struct, frozen=True):
    """One flag or positional of a command."""

    names: tuple[str, ...]
    help: str
    metavar: str | None = None
    default: Any = None
    action: str = "store"
    choices: tuple[str, ...] | None = None
    parse: Callable[[str], Any] | None = None
    nargs: str | None = None
    dest: str = ""
    """The name under which the command finds it; empty for that of the first long flag."""
    offers: str = ""
    """`module:function` of `function() -> tuple[str, ...]`: what shells offer for it, beside what else it may be."""

    @property
    def takes_value(self) -> bool:
        """Whether a word follows the flag."""
        return self.action not in {"store_true", "version"}


class Example(Struct, frozen=True):
    """A command line that works, and what it is for."""

    line: str
    purpose: str


class Command(Struct, frozen=True):
    """A verb with its arguments; `runs` names the function, imported only when the command is used."""

    name: str
    summary: str
    runs: str = ""
    """`module:function` of `function(arguments, streams) -> int`; empty for a mere group."""
    description: str = ""
    arguments: tuple[Argument, ...] = ()
    examples: tuple[Example, ...] = ()
    exits: tuple[ExitCode, ...] = ()
    """What it may end with, besides `exit_codes.ALWAYS`."""
    subcommands: tuple["Command", ...] = ()
    of_machine: bool = False
    """Whether it is about this machine, also while a simulation runs that other commands are about."""

    @property
    def exit_codes(self) -> tuple[ExitCode, ...]:
        """Everything that it may end with, in order."""
        return tuple(sorted({*ALWAYS, *self.exits}))
