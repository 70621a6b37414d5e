"""`nodeagent completion`: scripts for the shells, made from the list of commands; the making is pure."""

import argparse
from collections.abc import Callable, Iterator

from nodeagent.app.simulator import SimulatorMissing, import_of_simulator
from nodeagent.cli.commands import ROOT
from nodeagent.cli.frame.command import Argument, Command
from nodeagent.cli.frame.exit_codes import ExitCode
from nodeagent.cli.main import Streams

FILES = ("FILE", "FILE.tar.gz", "DIR", "DIRECTORY")
"""Placeholders of arguments with a path."""


def run(arguments: argparse.Namespace, streams: Streams) -> int:
    """Print the script."""
    streams.out.write(SHELLS[arguments.shell](ROOT))
    return ExitCode.OK


def walk(command: Command, words: tuple[str, ...] = ()) -> Iterator[tuple[tuple[str, ...], Command]]:
    """Every command with its words, the root first with no words."""
    yield words, command
    for one in command.subcommands:
        yield from walk(one, (*words, one.name))


def list_flags(command: Command) -> list[Argument]:
    """The arguments with a leading dash."""
    return [argument for argument in command.arguments if argument.names[0].startswith("-")]


def list_values(argument: Argument) -> tuple[str, ...]:
    """The possible values of an argument, if known."""
    if argument.choices is not None or not argument.offers:
        return argument.choices or ()
    module, _, function = argument.offers.partition(":")
    try:
        values: tuple[str, ...] = getattr(import_of_simulator(module), function)()
    except SimulatorMissing:
        return ()
    return values


def list_choices(command: Command) -> list[str]:
    """The possible values of positional arguments, if known."""
    return [
        choice
        for argument in command.arguments
        if not argument.names[0].startswith("-")
        for choice in list_values(argument)
    ]


def takes_files(command: Command) -> bool:
    """Whether a positional argument is a path."""
    return any(not one.names[0].startswith("-") and one.metavar in FILES for one in command.arguments)


def render_bash(root: Command) -> str:
    """A function that walks the typed words and offers the next word."""
    cases = []
    for words, command in walk(root):
        names = [one.name for one in command.subcommands] + list_choices(command)
        flags = [name for argument in list_flags(command) for name in argument.names]
        also = " files=yes" if takes_files(command) else ""
        cases.append(f'    "{" ".join(words)}") words="{" ".join([*names, *flags, "--help"])}"{also} ;;')
    flags_known = {name: one for _, command in walk(root) for one in list_flags(command) for name in one.names}
    files = sorted(name for name, one in flags_known.items() if one.metavar in FILES)
    valued = "\n".join(
        f'    {name}) _nodeagent_offer "{" ".join(list_values(one))}"; return ;;'
        for name, one in sorted(flags_known.items())
        if one.takes_value and name not in files
    )
    paths = "|".join(f'"{" ".join(words)}"' for words, _ in walk(root) if words)
    body = "\n".join(cases)
    return f"""# bash completion for nodeagent; made by `nodeagent completion bash`
_nodeagent_offer() {{
  # Readline takes = and : for the end of a word: what stands before them is there already, and is taken off.
  local head="${{current%"${{current##*[:=]}}"}}"
  mapfile -t COMPREPLY < <(compgen -W "$1" -- "$current")
  [[ ${{#COMPREPLY[@]}} -eq 1 && "${{COMPREPLY[0]}}" == *= ]] && compopt -o nospace
  [[ ${{#COMPREPLY[@]}} -eq 0 ]] || COMPREPLY=("${{COMPREPLY[@]#"$head"}}")
}}
_nodeagent() {{
  local line="${{COMP_LINE:0:COMP_POINT}}" current="" previous="" path="" files="" word words typed at
  read -ra typed <<< "$line"
  [[ "$line" == *[[:space:]] ]] && typed+=("")
  current="${{typed[-1]}}" previous="${{typed[-2]}}"
  for ((at = 1; at < ${{#typed[@]}} - 1; at++)); do
    word="${{typed[at]}}"
    case "${{path:+$path }}$word" in {paths}) path="${{path:+$path }}$word" ;; esac
  done
  case "$previous" in
    {"|".join(files)}) mapfile -t COMPREPLY < <(compgen -f -- "$current"); return ;;
{valued}
  esac
  case "$path" in
{body}
    *) words="" ;;
  esac
  _nodeagent_offer "$words"
  [[ -z "$files" ]] || mapfile -t -O ${{#COMPREPLY[@]}} COMPREPLY < <(compgen -f -- "$current")
}}
complete -o bashdefault -F _nodeagent nodeagent
"""


def render_zsh(root: Command) -> str:
    """A function per command, in the form of `_arguments` and `_describe`."""
    functions = "\n".join(_render_zsh_function(words, command) for words, command in walk(root))
    return f"""#compdef nodeagent
# zsh completion for nodeagent; made by `nodeagent completion zsh`
{functions}
if [ "$funcstack[1]" = "_nodeagent" ]; then _nodeagent "$@"; else compdef _nodeagent nodeagent; fi
"""


def _render_zsh_function(words: tuple[str, ...], command: Command) -> str:
    name = _name_function(words)
    specs = [spec for argument in list_flags(command) for spec in _render_zsh_flag(argument)]
    specs.append("'--help[show help]'")
    choices = list_choices(command)
    if not command.subcommands:
        if choices:
            specs.append(f"'1:argument:({' '.join(choices)})'")
        elif takes_files(command):
            specs.append("'*:file:_files'")
        return f"{name}() {{\n  _arguments -s {' '.join(specs)}\n}}"
    described = " ".join(f"'{one.name}:{_quote_zsh(one.summary)}'" for one in command.subcommands)
    cases = "\n".join(
        f"      {one.name}) shift words; (( CURRENT-- )); {_name_function((*words, one.name))} ;;"
        for one in command.subcommands
    )
    return f"""{name}() {{
  local -a commands; commands=({described})
  local at=2
  while (( at < CURRENT )) && [[ $words[at] == -* ]]; do (( at++ )); done
  if (( at >= CURRENT )); then
    _arguments -s {" ".join(specs)}
    _describe command commands
  else
    shift $((at - 2)) words; (( CURRENT -= at - 2 ))
    case $words[2] in
{cases}
    esac
  fi
}}"""


def _name_function(words: tuple[str, ...]) -> str:
    return "_".join(("_nodeagent", *words)).replace("-", "_")


def _render_zsh_flag(argument: Argument) -> Iterator[str]:
    value = f":{(argument.metavar or 'value').lower()}:" if argument.takes_value else ""
    values = list_values(argument)
    if value and any(one.endswith("=") for one in values):
        value += f'{{compadd -S "" -- {" ".join(values)}}}'  # the value follows without a space
    elif value and values:
        value += f"({' '.join(one.replace(':', chr(92) + ':') for one in values)})"
    elif value and argument.metavar in FILES:
        value += "_files"
    for name in argument.names:
        yield f"'{name}[{_quote_zsh(argument.help)}]{value}'"


def _quote_zsh(text: str) -> str:
    return text.replace("'", "").replace("[", "(").replace("]", ")").replace(":", " -")


def render_fish(root: Command) -> str:
    """A line for each command and each flag, valid below the command's words."""
    lines = ["# fish completion for nodeagent; made by `nodeagent completion fish`", "complete -c nodeagent -f"]
    for words, command in walk(root):
        condition = _render_fish_condition(words, command)
        lines += [
            f"complete -c nodeagent -n '{condition}' -a {one.name} -d {_quote_fish(one.summary)}"
            for one in command.subcommands
        ]
        lines += [f"complete -c nodeagent -n '{condition}' -a {choice}" for choice in list_choices(command)]
        lines += [f"complete -c nodeagent -n '{condition}' -F"] if takes_files(command) else []
        lines += [
            f"complete -c nodeagent -n '{condition}' {_render_fish_flag(argument)}" for argument in list_flags(command)
        ]
    return "\n".join(lines) + "\n"


def _render_fish_condition(words: tuple[str, ...], command: Command) -> str:
    if not words:
        return "__fish_use_subcommand"
    seen = [f"__fish_seen_subcommand_from {word}" for word in words]
    if command.subcommands:
        names = " ".join(one.name for one in command.subcommands)
        seen.append(f"not __fish_seen_subcommand_from {names}")
    return "; and ".join(seen)


def _render_fish_flag(argument: Argument) -> str:
    parts = [f"-s {name[1:]}" if not name.startswith("--") else f"-l {name[2:]}" for name in argument.names]
    if argument.takes_value:
        parts.append("-r")
        parts += ["-F"] if argument.metavar in FILES else []
        values = list_values(argument)
        parts += [f"-a '{' '.join(values)}'"] if values else []
    return " ".join([*parts, f"-d {_quote_fish(argument.help)}"])


def _quote_fish(text: str) -> str:
    return "'" + text.replace("\\", "\\\\").replace("'", "\\'") + "'"


SHELLS: dict[str, Callable[[Command], str]] = {"bash": render_bash, "zsh": render_zsh, "fish": render_fish}
