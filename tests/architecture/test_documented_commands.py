"""Every command in the documentation is one that the agent understands, and a test tries it unless it is said why."""

import argparse
import functools
import re
import shlex
from collections.abc import Iterator
from pathlib import Path

import pytest

from nodeagent.cli.commands import ROOT as COMMANDS
from nodeagent.cli.frame.parser import build_parser
from tests.integration.documented import INSTALLING, MOVING, NOT_RUN, STATUS, find_place, list_commands
from tests.support.texts import markdown
from tests.support.texts.markdown import find_blocks

ROOT = Path(__file__).parents[2]
PAGES = (ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md")))
_FENCE = re.compile(r"^ *```(sh|console|bash)\n(.*?)^ *```", re.MULTILINE | re.DOTALL)
_SPAN = re.compile(r"`(nodeagent [^`\n]+)`")
_OPERATORS = frozenset(";&|<>()")
_BEFORE = ("sudo", "kubectl")  # programs that are given the agent's command line after their own words


def list_block_calls(text: str) -> Iterator[list[str]]:
    """The agent's arguments in every line of the shell blocks."""
    for kind, block in _FENCE.findall(text):
        for line in block.replace("\\\n", " ").splitlines():
            # A console shows what is typed after a prompt, and what comes of it without one.
            if kind != "console" or line.startswith("$ "):
                yield from _find_calls(line.strip().removeprefix("$ "))


def list_span_calls(text: str) -> Iterator[list[str]]:
    for span in _SPAN.findall(text):
        yield from _find_calls(span)


def _find_calls(line: str) -> Iterator[list[str]]:
    lexer = shlex.shlex(line, posix=True, punctuation_chars=True)
    lexer.whitespace_split, lexer.commenters = True, "#"
    try:
        words = list(lexer)
    except ValueError:
        return  # output shown in a block, with a lone quote
    segment: list[str] = []
    opened_by = ""
    for word in [*words, "|"]:
        if not set(word) <= _OPERATORS:
            segment.append(word)
            continue
        # What follows an arrow is the name of a file.
        yield from () if opened_by in {"<", ">", ">>"} else _find_starts(segment)
        segment, opened_by = [], word


def _find_starts(segment: list[str]) -> Iterator[list[str]]:
    for index, word in enumerate(segment):
        own = index == 0 or (segment[0] in _BEFORE and segment[index - 1] in {"--", "sudo"})
        if own and word.rpartition("/")[2] == "nodeagent":
            yield segment[index + 1 :]


@functools.cache
def make_parser() -> argparse.ArgumentParser:
    """Once: it takes long to make, and knows nothing of what it parsed before."""
    return build_parser(COMMANDS)


def parse(words: list[str], capsys: pytest.CaptureFixture[str]) -> str:
    """What the parser says against it; nothing when it takes it. A placeholder such as … stands for anything."""
    if any("…" in word or "..." in word for word in words):
        return ""
    try:
        make_parser().parse_args(words)
    except SystemExit as end:
        said = capsys.readouterr().err
        return f"nodeagent {shlex.join(words)}: {said}" if end.code else ""
    return ""


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_every_documented_command_parses(page: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Whoever copies a line gets no usage message; running text may name a command without its arguments."""
    text = page.read_text(encoding="utf-8")
    problems = [parse(words, capsys) for words in list_block_calls(text)]
    problems += [
        problem for words in list_span_calls(text) if "arguments are required" not in (problem := parse(words, capsys))
    ]
    assert [problem for problem in problems if problem] == []


def test_commands_are_found_wherever_they_are_written(capsys: pytest.CaptureFixture[str]) -> None:
    """In blocks with prompts, comments, pipes and other programs before them, and in running text."""
    text = """
```sh
$ nodeagent status --json | jq .
kubectl -n nodeagent exec ds/nodeagent -- nodeagent top  # why
cat a | .venv/bin/nodeagent config \\
  import - > b
helm install nodeagent deploy/chart
it's nothing
```
```console
$ nodeagent version
nodeagent 1.0 and more
```
See `nodeagent gpu list`, nodeagent is.
"""
    assert list(list_block_calls(text)) == [["status", "--json"], ["top"], ["config", "import", "-"], ["version"]]
    assert list(list_span_calls(text)) == [["gpu", "list"]]
    assert "no command 'stutus'" in parse(["stutus"], capsys)
    assert parse(["status", "…"], capsys) == ""


def test_every_documented_command_is_tried_somewhere() -> None:
    """A new kind of command fails here until somebody says where it runs."""
    assert [f"{block.name}: {command}" for block, command in list_commands() if find_place(command) is None] == []


def test_exceptions_are_of_commands_that_are_there() -> None:
    """An exception outlives no command; every way to install or to move is one that a test follows."""
    commands = {command for _, command in list_commands()}
    assert NOT_RUN.keys() <= commands
    assert STATUS.keys() <= commands
    assert {block.name for page in markdown.PAGES for block in find_blocks(page)} >= INSTALLING | MOVING
