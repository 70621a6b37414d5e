"""The error about options typed before their command; pure.

argparse takes the value of such an option for a command, or parses the option and loses its value at the next command.
"""

import shlex
from collections.abc import Iterator, Sequence

from nodeagent.cli.frame.command import Argument, Command

HELP = ("-h", "--help")


def explain_order(root: Command, words: Sequence[str]) -> str:
    """Why the words are refused, with a working order; empty where no option stands before a command."""
    command, path, early, rest = root, [root.name], list[str](), list(words)
    flags = list[str]()
    is_early = False
    while command.subcommands and rest:
        names = {one.name: one for one in command.subcommands}
        if rest[0] in names:
            command, is_early = names[rest[0]], bool(early)
            path.append(rest.pop(0))
            continue
        flag = rest[0].partition("=")[0]
        known = [one for one in _list_arguments(command) if flag in one.names and one.action != "version"]
        if not flag.startswith("-") or flag in HELP or not known:
            break
        flags.append(flag)
        early.append(rest.pop(0))
        kinds = {one.takes_value and one.nargs != "?" for one in known}
        if "=" not in early[-1] and rest and True in kinds and (False not in kinds or rest[0] not in names):
            early.append(rest.pop(0))
    return _say(command, path, early, flags, rest) if is_early or (early and not command.runs) else ""


def _say(command: Command, path: list[str], early: list[str], flags: list[str], rest: list[str]) -> str:
    where = f"{', '.join(map(repr, flags))} before the command"
    if not command.runs:
        return f"{where}; did you mean {shlex.join([*path, 'COMMAND', *early])!r}?"
    own = {name for one in command.arguments for name in one.names}
    strange = [flag for flag in flags if flag not in own]
    if strange:
        return f"{where}, and {shlex.join(path)!r} does not know {', '.join(map(repr, strange))}"
    return f"{where}; did you mean {shlex.join([*path, *rest, *early])!r}?"


def _list_arguments(command: Command) -> Iterator[Argument]:
    """The arguments of the command and of all its subcommands."""
    yield from command.arguments
    for one in command.subcommands:
        yield from _list_arguments(one)
