"""Beside a simulation, commands about this machine say so, to people alone."""

import socket
from collections.abc import Iterator
from contextlib import ExitStack
from io import StringIO
from pathlib import Path

import pytest

from nodeagent.cli.answers.answer import describe_machine
from nodeagent.cli.answers.places import find_admin_socket
from nodeagent.cli.commands import ROOT
from nodeagent.cli.frame.command import Command
from nodeagent.cli.frame.parser import build_parser
from nodeagent_sim.directory import claim_place
from tests.support.programs.command_line import run_here

TEXT = "nodeagent: this is about this machine, not about the simulation 1 (a made-up t4)\n"
ABOUT_MACHINES = """cdi files, cdi generate, cdi info, cdi list, cdi validate, config check, config show,
devices discover, gpu holders, metrics list, render labels, render metrics, runtime configure, runtime detect,
runtime plan, runtime unconfigure, uninstall"""


class Machine:
    """A machine on which somebody listens here and there."""

    def __init__(self, directory: Path, stack: ExitStack) -> None:
        self.directory, self._stack = directory, stack

    def listen(self, path: Path) -> None:
        path.parent.mkdir(parents=True, exist_ok=True)
        listener = self._stack.enter_context(socket.socket(socket.AF_UNIX))
        listener.bind(str(path))
        listener.listen()

    def simulate(self, name: str, profile: str) -> None:
        environ = {"TMPDIR": str(self.directory)}
        place = self._stack.enter_context(claim_place(environ, name, profile, keep_state=False))
        self.listen(find_admin_socket(place))

    def ask(self, *words: str) -> str:
        heard = StringIO()
        describe_machine(build_parser(ROOT, words).parse_args(words), heard, self.directory / "run")
        return heard.getvalue()


@pytest.fixture
def machine(short_dir: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Machine]:
    monkeypatch.setenv("TMPDIR", str(short_dir))
    monkeypatch.delenv("XDG_RUNTIME_DIR", raising=False)
    monkeypatch.delenv("NODEAGENT_SIMULATION", raising=False)
    with ExitStack() as stack:
        yield Machine(short_dir, stack)


def test_people_hear_that_it_is_not_about_the_simulation(machine: Machine) -> None:
    assert machine.ask("gpu", "holders") == ""
    machine.simulate("1", "t4")
    assert machine.ask("gpu", "holders") == TEXT
    assert machine.ask("gpu", "holders", "--no-headers") == TEXT
    machine.simulate("2", "l40s")
    assert machine.ask("cdi", "validate").endswith("the simulations 1 (a made-up t4), 2 (a made-up l40s)\n")


def test_nothing_is_said_to_programs_or_where_it_is_plain(machine: Machine) -> None:
    """Records, files and sources by name, and this machine's own agent, to which all commands go."""
    machine.simulate("1", "t4")
    for words in (
        ("gpu", "holders", "--json"),
        ("gpu", "holders", "-o", "yaml"),
        ("cdi", "validate", "a.json"),
        ("render", "labels", "--gpus", "simulated:t4"),
    ):
        assert machine.ask(*words) == ""
    machine.listen(machine.directory / "run" / "admin.sock")
    assert machine.ask("gpu", "holders") == ""
    assert machine.ask("gpu", "holders", "--simulation", "1") == TEXT


def test_a_directory_of_somebody_else_is_nobodys_simulation(machine: Machine) -> None:
    """What is in there is not read."""
    machine.simulate("1", "t4")
    (place,) = machine.directory.glob("nodeagent-simulations-*")
    place.chmod(0o777)
    assert machine.ask("gpu", "holders") == ""
    place.chmod(0o700)


def test_the_sentence_is_no_part_of_the_answer(machine: Machine, monkeypatch: pytest.MonkeyPatch) -> None:
    """It is said of the command line as it is typed, on standard error."""
    machine.simulate("1", "t4")
    monkeypatch.setenv("NODEAGENT_SIMULATION", "1")
    code, out, err = run_here("config", "show", "--changed")
    assert (code, out, err) == (0, "every setting has its default\n", TEXT)


def _walk(words: tuple[str, ...], command: Command) -> Iterator[str]:
    if command.of_machine:
        yield " ".join(words)
    for one in command.subcommands:
        yield from _walk((*words, one.name), one)


def test_these_commands_are_about_this_machine() -> None:
    """All others that look at a node ask an agent, and say of a simulation that it is one."""
    assert sorted(_walk((), ROOT)) == [name.strip() for name in ABOUT_MACHINES.split(",")]
