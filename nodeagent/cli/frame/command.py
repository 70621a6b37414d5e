"""A command as a value, the source of the parser, the help and the reference page."""

from collections.abc import Callable
from typing import Any

from msgspec import Struct

from nodeagent.cli.frame.exit_codes import ALWAYS, ExitCode
from nodeagent.model.orders import Order


class Argument(Struct, frozen=True):
    """A flag or positional of a command."""

    names: tuple[str, ...]
    help: str
    metavar: str | None = None
    default: Any = None
    action: str = "store"
    choices: tuple[str, ...] | None = None
    parse: Callable[[str], Any] | None = None
    nargs: str | None = None
    dest: str = ""
    """The argument's name in the namespace; empty for the name of the first long flag."""
    offers: str = ""
    """`module:function` of `function() -> tuple[str, ...]`: the shells' offers; other values are allowed too."""

    @property
    def takes_value(self) -> bool:
        """Whether a word follows the flag."""
        return self.action not in {"store_true", "version"}


class Example(Struct, frozen=True):
    """A working command line, and its purpose."""

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
    """Possible exit codes, besides `exit_codes.ALWAYS`."""
    subcommands: tuple["Command", ...] = ()
    order: Order[Any] | None = None
    """The order given to the running agent, with the command's arguments of the same names."""
    of_machine: bool = False
    """Whether the command is about this machine, also while a running simulation answers other commands."""

    @property
    def exit_codes(self) -> tuple[ExitCode, ...]:
        """Every possible exit code of the command, in order."""
        return tuple(sorted({*ALWAYS, *self.exits}))
