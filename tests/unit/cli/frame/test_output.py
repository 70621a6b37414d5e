"""Tables, JSON, YAML and names: one mechanism for every command."""

import argparse
import io
import json

import pytest
import yaml

from nodeagent.cli.answers.output import write_table
from nodeagent.cli.answers.table import Layout, Table, lay_out
from nodeagent.cli.commands import ROOT
from nodeagent.cli.frame.command import Argument
from nodeagent.cli.frame.completion import walk
from nodeagent.cli.main import Streams
from tests.support.programs.command_line import run_here

TABLE = Table(
    ("NAME", "SIZE", "SECRET", "LAST"),
    [("a\x1b", "1", "x", "long " * 10), ("b", "22", "y", "z")],
    giving_way=("SIZE",),
    wide=("SECRET",),
)


class Simulation:
    """Who answers from made-up hardware."""

    where, simulated = "simulation 1", "t4"


def test_what_scripts_read_is_not_told_that_it_is_made_up() -> None:
    """A person still reads it, on the other stream: `awk` would take the sentence for a row."""
    for asked in ({"no_headers": True}, {"form": "name"}):
        streams = Streams(io.StringIO(), io.StringIO())
        arguments = argparse.Namespace(**({"json": False, "form": None, "no_headers": False} | asked))
        write_table(arguments, streams, {}, Table(("A",), [("x",)]), answerer=Simulation())
        assert isinstance(streams.out, io.StringIO)
        assert isinstance(streams.err, io.StringIO)
        assert streams.out.getvalue() == "x\n"
        assert streams.err.getvalue().startswith("simulation 1: a made-up t4")


def print_here(table: Table, **asked: object) -> str:
    streams = Streams(io.StringIO(), io.StringIO())
    arguments = argparse.Namespace(**({"json": False, "form": None, "no_headers": False} | asked))
    write_table(arguments, streams, {"all": [{"name": "ä"}]}, table, after=["and more"])
    assert isinstance(streams.out, io.StringIO)
    return streams.out.getvalue()


def test_a_table_shows_what_fits_and_wide_shows_all() -> None:
    """Columns give way, the last one is cut; asked for wide, nothing is left out and nothing cut."""
    narrow = lay_out(TABLE, Layout(20))
    assert [line.split()[0] for line in narrow] == ["NAME", "a�", "b"]
    assert "SIZE" not in narrow[0]
    assert max(map(len, narrow)) == 20
    assert lay_out(TABLE, Layout(60))[0].split() == ["NAME", "SIZE", "LAST"]
    wide = lay_out(TABLE, Layout(20, wide=True))
    assert wide[0].split() == ["NAME", "SIZE", "SECRET", "LAST"]
    assert wide[1].endswith("long long")


def test_headers_can_be_left_out() -> None:
    """What `awk` reads has no line of names."""
    assert lay_out(TABLE, Layout(60, headers=False)) == lay_out(TABLE, Layout(60))[1:]
    assert lay_out(Table(("A",), [], nothing="none"), Layout(60, headers=False)) == ["none"]
    assert lay_out(Table(("A",), []), Layout(60, headers=False)) == []


def test_every_form_has_its_text() -> None:
    """People get the table and what is said below it; scripts get neither."""
    assert print_here(TABLE).endswith("\nand more\n")
    assert json.loads(print_here(TABLE, json=True)) == {"all": [{"name": "ä"}]}
    assert yaml.safe_load(print_here(TABLE, form="yaml")) == {"all": [{"name": "ä"}]}
    assert print_here(TABLE, form="name") == "a�\nb\n"
    assert print_here(Table(("A",), [("x",), ("x",)], names=("n", "n")), form="name") == "n\n"
    assert print_here(Table(("A",), [], nothing="none"), form="name") == ""


@pytest.mark.parametrize(
    "words",
    [
        ("version",),
        ("gpu", "list", "--gpus", "simulated:t4"),
        ("gpu", "topology", "--gpus", "simulated:dgx-h100"),
        ("gpu", "xids"),
        ("gpu", "xids", "79"),
        ("gpu", "prefer", "--gpus", "simulated:dgx-h100"),
        ("metrics", "list"),
        ("config", "show"),
        ("config", "check"),
    ],
    ids=" ".join,
)
@pytest.mark.long
def test_json_and_yaml_say_the_same(words: tuple[str, ...]) -> None:
    """Whichever a script reads, it reads the same values; `--json` stays what it was."""
    code, plain, _ = run_here(*words, "--json")
    assert run_here(*words, "-o", "json") == (code, plain, "")
    again, text, _ = run_here(*words, "-o", "yaml")
    assert (again, yaml.safe_load(text)) == (code, json.loads(plain))


def test_forms_that_exclude_each_other_are_refused(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        run_here("version", "--json", "-o", "yaml")
    assert ended.value.code == 2
    assert "--json and -o yaml exclude each other" in capsys.readouterr().err
    code, _, err = run_here("events", "--follow", "-o", "yaml")
    assert code == 2
    assert "use -o json" in err


LINES = {("config", "import"), ("mig", "apply")}
"""Their `--json` is not the form of a table: a setting each, or a document a line while the work goes on."""


def test_what_answers_in_json_answers_in_yaml() -> None:
    """A command that knows `--json` knows `-o`; one with tables knows `--no-headers` too."""

    def find(arguments: tuple[Argument, ...], name: str) -> Argument | None:
        return next((one for one in arguments if name in one.names), None)

    for words, command in walk(ROOT):
        form = find(command.arguments, "-o")
        if find(command.arguments, "--json") is None or words in LINES:
            assert form is None or form.metavar == "FILE"
            continue
        assert form is not None, words
        assert form.choices is not None
        assert {"json", "yaml"} <= set(form.choices)
        assert ("wide" in form.choices) == (find(command.arguments, "--no-headers") is not None)


def test_names_are_for_other_commands_to_read() -> None:
    """A GPU by its UUID, an XID by its number."""
    code, out, _ = run_here("gpu", "list", "--gpus", "simulated:t4", "-o", "name")
    assert code == 0
    assert {line[:4] for line in out.splitlines()} == {"GPU-"}
    assert run_here("gpu", "xids", "79", "-o", "name") == (0, "79\n", "")
    assert run_here("gpu", "list", "--gpus", "simulated:t4", "--no-headers")[1].split()[0] == "0"
