"""Which agent a command speaks to, and whose word it takes."""

import os
import socket
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from unittest import mock

import pytest

from nodeagent.cli.answers import client
from nodeagent.cli.answers.client import AgentClient, find_agent
from nodeagent.cli.answers.places import find_admin_socket, find_simulations_dir, has_own_agent
from nodeagent.cli.main import CommandFailed
from nodeagent.config.load import load_settings
from nodeagent.config.schema import Settings
from nodeagent_sim.directory import claim_place

STRANGER = 54321


class Machine:
    """A machine on which somebody listens here and there; nothing is ever answered."""

    def __init__(self, directory: Path, stack: ExitStack) -> None:
        self.directory, self._stack = directory, stack
        self.environ = {"TMPDIR": str(directory)}
        self.run_dir = directory / "run"

    def listen(self, path: Path) -> None:
        path.parent.mkdir(parents=True, exist_ok=True)
        listener = self._stack.enter_context(socket.socket(socket.AF_UNIX))
        listener.bind(str(path))
        listener.listen()

    def simulate(self, name: str) -> None:
        place = self._stack.enter_context(claim_place(self.environ, name, f"profile-{name}", keep_state=False))
        self.listen(find_admin_socket(place))

    def find(self, *, port: int = 1, **how: bool) -> AgentClient:
        """The agent of a command whose settings say nothing of this directory."""
        own = load_settings(environ={}, overrides=[f"node.run_dir={self.run_dir}"]).settings
        with mock.patch.object(client, "Settings", return_value=own):
            return self.find_given(port=port, **how)

    def find_given(self, *, port: int = 1, **how: bool) -> AgentClient:
        """The agent of a command whose settings name the directory of the agent."""
        overrides = [f"node.run_dir={self.run_dir}", f"http.listen=127.0.0.1:{port}"]
        agent = find_agent(load_settings(environ={}, overrides=overrides).settings, self.environ, **how)
        agent._connection.close()
        return agent


@pytest.fixture
def machine(short_dir: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Machine]:
    """A machine of this test's own, with no configuration of an agent."""
    no_file = short_dir / "no-configuration"
    monkeypatch.setattr(client, "has_own_agent", lambda run_dir: has_own_agent(run_dir, no_file))
    with ExitStack() as stack:
        yield Machine(short_dir, stack)


def test_the_agent_goes_before_a_simulation(machine: Machine) -> None:
    """A command for a node is about the node; without an agent the only simulation is meant."""
    machine.simulate("1")
    assert machine.find().where == "simulation 1"
    machine.listen(machine.run_dir / "admin.sock")
    assert machine.find().where == f"{machine.run_dir}/admin.sock"
    machine.environ["NODEAGENT_SIMULATION"] = "1"
    assert machine.find().where == "simulation 1"


def test_a_simulation_never_stands_in_for_an_agent_of_this_machine(machine: Machine) -> None:
    """Where its directory is given or there, the agent is down: the answer of a made-up node would be taken for it."""
    machine.simulate("1")
    with pytest.raises(
        CommandFailed, match=r"no agent answers at .*/run/admin\.sock, .*1 \(profile-1.*--simulation NAME"
    ):
        machine.find_given()
    machine.run_dir.mkdir()
    with pytest.raises(
        CommandFailed, match=r"no agent answers at .*/run/admin\.sock, .*1 \(profile-1.*--simulation NAME"
    ):
        machine.find()
    assert machine.find(change=True, to_simulation=True).where == "simulation 1"


def test_of_several_simulations_none_is_guessed(machine: Machine) -> None:
    """All are named with how to choose; the one that is named is asked."""
    machine.simulate("1")
    machine.simulate("mine")
    with pytest.raises(CommandFailed, match=r"1 \(profile-1, .*\); mine \(profile-mine, .*--simulation NAME or NODEAG"):
        machine.find()
    machine.environ["NODEAGENT_SIMULATION"] = "mine"
    assert machine.find().where == "simulation mine"
    machine.environ["NODEAGENT_SIMULATION"] = "other"
    with pytest.raises(CommandFailed, match=r"no simulation 'other' runs .*: 1 \(profile-1"):
        machine.find()


def test_a_named_simulation_is_never_another_agent(machine: Machine) -> None:
    machine.listen(machine.run_dir / "admin.sock")
    machine.environ["NODEAGENT_SIMULATION"] = "1"
    with pytest.raises(CommandFailed, match=r"no simulation '1' runs in .*: none does"):
        machine.find()


def test_a_fault_is_for_the_simulation_beside_the_nodes_agent(machine: Machine) -> None:
    """The node's own agent has real GPUs; who names an agent's directory means that one."""
    machine.simulate("1")
    machine.listen(machine.run_dir / "admin.sock")
    assert machine.find_given(change=True, to_simulation=True).where == f"{machine.run_dir}/admin.sock"
    assert machine.find(change=True, to_simulation=True).where == "simulation 1"


def test_a_simulation_that_was_killed_is_none(machine: Machine) -> None:
    """Its socket's file is there, and nobody behind it."""
    place = find_simulations_dir(machine.environ) / "1"
    (place / "run").mkdir(parents=True)
    place.parent.chmod(0o700)
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(str(find_admin_socket(place)))
    with pytest.raises(CommandFailed, match=r"no agent answers at .*admin\.sock, .*nodeagent-simulations-"):
        machine.find()


def test_a_port_is_asked_last_and_for_looks_alone(machine: Machine) -> None:
    """What changes something goes through a socket, never through a port."""
    with socket.create_server(("127.0.0.1", 0)) as listener:
        port = listener.getsockname()[1]
        assert machine.find(port=port).where == f"http://127.0.0.1:{port}"
        with pytest.raises(CommandFailed, match="no agent answers"):
            machine.find(port=port, change=True)


def trust_nobody(monkeypatch: pytest.MonkeyPatch) -> None:
    """Make every process on this machine a stranger's."""
    monkeypatch.setattr(client, "is_trusted", lambda _uid: False)


@pytest.mark.parametrize("place", ["agent", "simulation", "port"])
def test_a_strangers_word_is_not_taken(machine: Machine, monkeypatch: pytest.MonkeyPatch, place: str) -> None:
    """Whoever was first at a path or a port could say that all is well."""
    trust_nobody(monkeypatch)
    with socket.create_server(("127.0.0.1", 0)) as listener:
        port = listener.getsockname()[1] if place == "port" else 1
        if place == "agent":
            machine.listen(machine.run_dir / "admin.sock")
        if place == "simulation":
            machine.simulate("1")
        with pytest.raises(CommandFailed, match=rf"is answered by user .* \({os.geteuid()}\), neither root nor you"):
            machine.find(port=port)


def test_a_port_of_nobody_knows_whom_is_not_believed(machine: Machine, monkeypatch: pytest.MonkeyPatch) -> None:
    """As where it is forwarded into another network namespace."""
    monkeypatch.setattr(client, "read_port_users", lambda _port: frozenset())
    with socket.create_server(("127.0.0.1", 0)) as listener:
        with pytest.raises(CommandFailed, match="cannot be seen here"):
            machine.find(port=listener.getsockname()[1])


@pytest.mark.skipif(os.geteuid() != 0, reason="needs root, to give a directory away")
@pytest.mark.parametrize("named", ["", "1"])
def test_a_made_up_place_is_named_and_not_looked_into(machine: Machine, named: str) -> None:
    """Another user has made the directory of root's simulations, with an agent in it that says that all is well."""
    place = find_simulations_dir(machine.environ)
    machine.listen(place / "1/run/admin.sock")
    os.chown(place, STRANGER, STRANGER)
    machine.environ["NODEAGENT_SIMULATION"] = named
    with pytest.raises(CommandFailed, match=rf"{place}.* belongs to user {STRANGER}, not to user root"):
        machine.find()


def test_the_defaults_are_those_of_a_node() -> None:
    """Else `simulate fault` would take every agent for one that was named."""
    assert Settings().node.run_dir == load_settings(environ={}, overrides=[]).settings.node.run_dir


def test_a_second_question_goes_to_nobody_else(machine: Machine) -> None:
    """A connection that was hung up is not opened again: to the library, one of a socket file means port 80."""
    machine.listen(machine.run_dir / "admin.sock")
    agent = machine.find()
    with pytest.raises(CommandFailed, match=r"admin\.sock does not answer"):
        agent.get("/api/v1/state")
    assert agent._connection.sock is None
    assert not agent._connection.auto_open
