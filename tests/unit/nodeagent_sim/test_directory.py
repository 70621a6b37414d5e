"""Whose directory a simulation has, and that it begins with nothing."""

import os
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

from nodeagent.cli.answers.places import find_simulations_dir, list_simulations, read_record
from nodeagent.cli.frame.exit_codes import ExitCode
from nodeagent.cli.main import CommandFailed
from nodeagent_sim.directory import claim_place

STRANGER = 54321


@pytest.fixture
def environ(short_dir: Path) -> dict[str, str]:
    """A place for simulations that is this test's own."""
    return {"TMPDIR": str(short_dir)}


@pytest.fixture
def stack() -> Iterator[ExitStack]:
    """Simulations that end with the test."""
    with ExitStack() as entered:
        yield entered


def claim(stack: ExitStack, environ: dict[str, str], name: str = "", *, keep_state: bool = False) -> Path:
    return stack.enter_context(claim_place(environ, name, "t4", keep_state=keep_state))


def test_each_has_the_first_free_number(environ: dict[str, str], stack: ExitStack) -> None:
    """Side by side under a directory that nobody else can look into, and all is gone at the end."""
    first, second = claim(stack, environ), claim(stack, environ)
    assert (first.name, second.name) == ("1", "2")
    assert first.parent == second.parent == find_simulations_dir(environ)
    assert [place.stat().st_mode & 0o777 for place in (first.parent, first, second)] == [0o700] * 3
    record = read_record(second)
    assert record is not None
    assert (record.name, record.profile, record.pid) == ("2", "t4", os.getpid())
    with ExitStack() as third:
        assert claim(third, environ).name == "3"
    stack.close()
    assert not first.parent.exists()


def test_a_number_is_free_again_and_a_name_is_held(environ: dict[str, str], stack: ExitStack) -> None:
    """The one who asks for a name that runs hears what runs there."""
    with ExitStack() as first:
        assert claim(first, environ).name == "1"
        claim(stack, environ, "mine")
    assert claim(stack, environ).name == "1"
    with pytest.raises(
        CommandFailed, match=rf"mine \(t4, process {os.getpid()}\) runs already.*--simulation"
    ) as failed:
        claim(stack, environ, "mine")
    assert failed.value.code is ExitCode.BAD_INPUT


@pytest.mark.parametrize("name", ["..", "a/b", ".hidden", "A", "x" * 17, "-x"])
def test_a_name_is_not_a_path(environ: dict[str, str], stack: ExitStack, name: str) -> None:
    with pytest.raises(CommandFailed, match="--simulation"):
        claim(stack, environ, name)
    assert not find_simulations_dir(environ).exists()


def leave_behind(environ: dict[str, str], short_dir: Path) -> Path:
    """What a simulation leaves that was killed, and a link to a file of somebody."""
    place = find_simulations_dir(environ) / "1"
    (place / "state").mkdir(parents=True)
    place.parent.chmod(0o700)
    place.chmod(0o700)
    (place / "state/verdicts").write_text("GPU 3 is lost")
    (short_dir / "precious").mkdir()
    (short_dir / "precious/file").write_text("precious")
    (place / "link").symlink_to(short_dir / "precious")
    return place


def test_it_begins_with_nothing_of_the_last_one(environ: dict[str, str], stack: ExitStack, short_dir: Path) -> None:
    """Nothing that a killed one left is there; where its links lead, nothing is touched."""
    place = leave_behind(environ, short_dir)
    assert list_simulations(environ) == ()
    assert claim(stack, environ) == place
    assert [file.name for file in place.iterdir()] == ["simulation.json"]
    assert (short_dir / "precious/file").read_text() == "precious"


def test_state_is_kept_where_that_is_asked_for(environ: dict[str, str], stack: ExitStack, short_dir: Path) -> None:
    place = leave_behind(environ, short_dir)
    claim(stack, environ, keep_state=True)
    stack.close()
    assert (place / "state/verdicts").read_text() == "GPU 3 is lost"


@pytest.mark.skipif(os.geteuid() != 0, reason="needs root, to give a directory away")
@pytest.mark.parametrize("inner", [False, True])
def test_a_place_that_somebody_made_first_is_refused(
    environ: dict[str, str], stack: ExitStack, short_dir: Path, *, inner: bool
) -> None:
    """Neither the directory of all nor one in it may be another's; nothing is written into it."""
    place = leave_behind(environ, short_dir)
    given = place if inner else place.parent
    os.chown(given, STRANGER, STRANGER)
    with pytest.raises(CommandFailed, match=f"{given} .*belongs to user {STRANGER}.*remove it") as failed:
        claim(stack, environ)
    assert failed.value.code is ExitCode.BAD_INPUT
    assert not (place / "simulation.json").exists()


def test_what_cannot_be_made_is_said(short_dir: Path, stack: ExitStack) -> None:
    (short_dir / "file").write_text("")
    with pytest.raises(CommandFailed, match=f"cannot make {short_dir}/file/nodeagent-simulations-"):
        claim(stack, {"TMPDIR": str(short_dir / "file")})
