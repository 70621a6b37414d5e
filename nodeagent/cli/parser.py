"""Makes the argument parser from the list of commands."""

import argparse
from collections.abc import Sequence
from typing import Any

from nodeagent.cli.command import Argument, Command
from nodeagent.cli.exit_codes import ExitCode


def build_parser(root: Command, words: Sequence[str] | None = None) -> argparse.ArgumentParser:
    """The parser of the whole command line; the chosen command is in `chosen` of the namespace.

    Given the words that it will be asked about, it knows only of the command that they begin with: to make all takes
    longer than everything else that happens before a command runs.
    """
    parser = argparse.ArgumentParser(prog=root.name, **_texts(root, is_root=True))
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
    group = parser.add_subparsers(title="commands", metavar="COMMAND", required=not command.runs)
    named = [one for one in command.subcommands if words and one.name == words[0]]
    for one in named or command.subcommands:
        rest = words[1:] if named and words else None
        _fill(group.add_parser(one.name, help=one.summary, **_texts(one, is_root=False)), one, rest)


def _add(parser: argparse.ArgumentParser, argument: Argument) -> None:
    options: dict[str, Any] = {"help": argument.help.replace("%", "%%"), "action": argument.action}
    if argument.action != "store_true":
        options["metavar"] = argument.metavar
        options["default"] = argument.default
    if argument.action == "append":
        # argparse would append to the default itself, so that one call's flags leak into the next
        options["default"] = None
    optional = {"choices": argument.choices, "type": argument.parse, "nargs": argument.nargs}
    options |= {name: value for name, value in optional.items() if value is not None}
    parser.add_argument(*argument.names, **options)


def _texts(command: Command, *, is_root: bool) -> dict[str, Any]:
    description = command.summary[0].upper() + command.summary[1:] + "."
    if command.description:
        description += "\n\n" + command.description
    return {
        "description": description,
        "epilog": _epilog(command, is_root=is_root),
        "formatter_class": argparse.RawDescriptionHelpFormatter,
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
