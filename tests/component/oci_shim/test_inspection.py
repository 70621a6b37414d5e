"""A shim that is in place, looked at for people: what they are told is what the program does."""

import os
from pathlib import Path

import pytest

from nodeagent.edge.host.machine.host_paths import HostPaths
from nodeagent.edge.host.shim.inspection import ShimSight, inspect_shim
from nodeagent.edge.host.shim.table_file import write_on_missing, write_table
from nodeagent.model.shim import ShimTable
from tests.component.oci_shim.support import TABLE

pytestmark = pytest.mark.may_block("nothing here runs on an event loop")


@pytest.fixture
def place(tmp_path: Path) -> Path:
    (tmp_path / "shim").mkdir()
    (tmp_path / "program").write_text("")
    (tmp_path / "program").chmod(0o755)
    write_table(tmp_path / "shim", TABLE)
    return tmp_path


def look(place: Path) -> ShimSight:
    return inspect_shim(place / "program", place / "shim", HostPaths())


def test_what_is_in_order_says_how_much_there_is(place: Path) -> None:
    """GPUs and parts of them, not every name."""
    assert look(place) == ShimSight(program=str(place / "program"), devices=5)
    write_on_missing(place / "shim", "pass")
    assert look(place).passes


def test_in_a_container_it_is_looked_at_on_the_host(place: Path) -> None:
    """Or under its own name, where that is shared."""
    seen = inspect_shim(Path("/program"), Path("/shim"), HostPaths(place))
    assert (seen.problem, seen.table_problem) == ("", "")
    shared = inspect_shim(place / "program", place / "shim", HostPaths(place / "nothing"), place)
    assert (shared.problem, shared.table_problem) == ("", "")


def test_every_trouble_has_its_words(place: Path) -> None:
    """The program's and the table's apart, since they have different outcomes."""
    table = place / "shim/table"
    whole = table.read_bytes()
    for content, said in (
        (whole[:-1], "its table is damaged"),
        (b"", "its table is damaged"),
        (whole.replace(b"table 1 ", b"table 2 ", 1), "not of version 1"),
    ):
        table.write_bytes(content)
        assert said in look(place).table_problem
    table.unlink()
    assert look(place).table_problem == f"{table} is not there"
    (place / "program").chmod(0o644)
    assert look(place).problem == ("it cannot be executed" if not os.access(place / "program", os.X_OK) else "")
    (place / "program").unlink()
    assert look(place).problem == "it is not there"


def test_a_table_of_another_boot_is_out_of_date(place: Path) -> None:
    mark = place / "boot_id"
    mark.write_text("two\n")
    write_table(place / "shim", ShimTable(fresh=((str(mark), "one"),)))
    assert look(place).table_problem == f"its table is out of date: {mark} says two and not one"
    mark.unlink()
    assert "says nothing and not one" in look(place).table_problem
    mark.write_text("one\n")
    assert look(place).table_problem == ""
