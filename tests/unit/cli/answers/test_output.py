"""What is printed where, in each form."""

import argparse
from io import StringIO

import pytest

from nodeagent.cli.answers.output import write_table
from nodeagent.cli.answers.table import Table
from nodeagent.cli.main import Streams


def write(*rows: tuple[str, str], **requests: object) -> tuple[str, str]:
    streams = Streams(StringIO(), StringIO())
    arguments = argparse.Namespace(**{"json": False, "form": None, "no_headers": False, **requests})
    write_table(arguments, streams, list(rows), Table(("NAME", "SIZE"), rows, nothing="nothing yet"), ["in short"])
    return streams.out.getvalue(), streams.err.getvalue()  # type: ignore[attr-defined]  # both are StringIO


def test_people_read_the_table_and_what_is_said_of_it() -> None:
    assert write(("a", "1")) == ("NAME  SIZE\na     1\nin short\n", "")
    assert write() == ("nothing yet\nin short\n", "")


def test_without_a_header_each_line_is_a_row() -> None:
    """A loop of a shell would take a sentence for one; people find it beside."""
    assert write(("a", "1"), no_headers=True) == ("a     1\n", "in short\n")
    assert write(no_headers=True) == ("", "nothing yet\nin short\n")


@pytest.mark.parametrize("form", [{"json": True}, {"form": "yaml"}])
def test_programs_hear_nothing_beside_their_record(form: dict[str, object]) -> None:
    out, err = write(("a", "1"), no_headers=True, **form)
    assert ("in short" in out, err) == (False, "")


def test_names_alone_are_names_alone() -> None:
    assert write(("a", "1"), ("a", "2"), form="name") == ("a\n", "")
