"""Makes the argument parser from the list of commands.

Owns the errors about unknown words: with the command before the word, and the likeliest correction.
"""

import argparse
from collections.abc import Iterable, Sequence
from functools import partial
from typing import Any, NoReturn

from nodeagent import __version__
from nodeagent.cli.frame.command import Argument, Command
from nodeagent.cli.frame.exit_codes import ExitCode
from nodeagent.cli.frame.word_order import explain_order
from nodeagent.model.wording import suggest


class Parser(argparse.ArgumentParser):
    """The parser of a single command."""

    # argparse asks for these signatures, and for any type of argument.
    def parse_args(self, args: Sequence[str] | None = None, namespace: Any = None) -> Any:  # type: ignore[override]
        """Parse, and refuse unknown words with the error of the command before the word."""
        if problem := explain_order(self.get_default("chosen"), args or ()):
            self.error(problem)
        arguments, unknown = self.parse_known_args(args, namespace)
        if unknown:
            arguments.parser.refuse_unknown(unknown)
        command = arguments.chosen
        if not command.runs:
            # argparse would ask for the command before the error about an unknown option.
            arguments.parser.error(f"choose a command: {', '.join(one.name for one in command.subcommands)}")
        _settle_form(arguments)
        return arguments

    def format_help(self) -> str:
        """The help, as wide as the terminal."""
        self.formatter_class = argparse.RawDescriptionHelpFormatter
        return super().format_help()

    def format_usage(self) -> str:
        """The usage, as wide as the terminal."""
        self.formatter_class = argparse.RawDescriptionHelpFormatter
        return super().format_usage()

    def refuse_unknown(self, words: Iterable[str]) -> NoReturn:
        """End with an error that names the unknown words, and similar known flags."""
        flags = [name for action in self._actions for name in action.option_strings]
        said = [
            f"unknown option {word!r}{suggest(word, flags)}"
            if (word := full.partition("=")[0]).startswith("-")
            else f"{word!r} is one word too many"
            for full in words
        ]
        self.error("; ".join(said))

    def _check_value(self, action: argparse.Action, value: Any) -> None:
        if action.choices is None or value in action.choices:
            return
        known = [str(choice) for choice in action.choices]
        near = suggest(str(value), known)
        hint = near or f"; choose one of {', '.join(known)}"
        kind = "no command" if isinstance(action, argparse._SubParsersAction) else "unknown"  # noqa: SLF001 - it has no public name
        raise argparse.ArgumentError(None if kind == "no command" else action, f"{kind} {value!r}{hint}")


def _settle_form(arguments: argparse.Namespace) -> None:
    """Treat `-o json` as `--json`, and refuse contradicting forms."""
    form = getattr(arguments, "form", None)
    if getattr(arguments, "json", False) and form not in (None, "json"):
        arguments.parser.error(f"--json and -o {form} exclude each other")
    if form == "json":
        arguments.json = True


def build_parser(root: Command, words: Sequence[str] | None = None) -> Parser:
    """The parser of the whole command line; the chosen command is in `chosen` of the namespace.

    With `words`, the parser has only the command at their beginning: to make all parsers takes longer than everything
    else before a command runs.
    """
    parser = Parser(prog=root.name, **_texts(root, is_root=True))
    _fill(parser, root, words)
    return parser


def _fill(parser: argparse.ArgumentParser, command: Command, words: Sequence[str] | None) -> None:
    parser.set_defaults(chosen=command, parser=parser)
    if command.subcommands:
        _add_subcommands(parser, command, words)
    for argument in command.arguments:
        if not (command.subcommands and not argument.names[0].startswith("-")):
            _add(parser, argument)


def _add_subcommands(parser: argparse.ArgumentParser, command: Command, words: Sequence[str] | None) -> None:
    group = parser.add_subparsers(title="commands", metavar="COMMAND", required=False, prog=parser.prog)
    named = [one for one in command.subcommands if words and one.name == words[0]]
    for one in named or command.subcommands:
        rest = words[1:] if named and words else None
        _fill(group.add_parser(one.name, help=one.summary, **_texts(one, is_root=False)), one, rest)


def _add(parser: argparse.ArgumentParser, argument: Argument) -> None:
    options: dict[str, Any] = {"help": argument.help.replace("%", "%%"), "action": argument.action}
    if argument.action == "version":
        options["version"] = f"nodeagent {__version__}"
    if argument.takes_value:
        options["metavar"] = argument.metavar
        options["default"] = argument.default
    if argument.action == "append":
        # argparse would append to the default itself, so that one call's flags leak into the next
        options["default"] = None
    optional = {
        "choices": argument.choices,
        "type": argument.parse,
        "nargs": argument.nargs,
        "dest": argument.dest or None,
    }
    options |= {name: value for name, value in optional.items() if value is not None}
    parser.add_argument(*argument.names, **options)


_CHECKING = partial(argparse.RawDescriptionHelpFormatter, width=80)
"""argparse makes a formatter to check each argument; reading the terminal's size would load archive formats."""


def _texts(command: Command, *, is_root: bool) -> dict[str, Any]:
    description = command.summary[0].upper() + command.summary[1:] + "."
    if command.description:
        description += "\n\n" + command.description
    return {
        "description": description,
        "epilog": _epilog(command, is_root=is_root),
        "formatter_class": _CHECKING,
        "allow_abbrev": False,
    }


def _epilog(command: Command, *, is_root: bool) -> str:
    paragraphs = []
    if command.examples:
        width = max(len(example.line) for example in command.examples)
        lines = [f"  {example.line:<{width}}  {example.purpose}" for example in command.examples]
        paragraphs.append("\n".join(["examples:", *lines]))
    shown = tuple(ExitCode) if is_root else command.exit_codes if command.runs else ()
    if shown:
        codes = [f"  {code.value:<3} {code.meaning}" for code in shown]
        paragraphs.append("\n".join(["exit codes:", *codes]))
    return "\n\n".join(paragraphs)
