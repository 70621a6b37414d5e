"""Asks a running agent over its admin socket, or over TCP for reads alone. Plain `http.client` starts fast."""

import http.client
import json
import os
import socket
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from http import HTTPStatus
from pathlib import Path
from typing import TypeVar

import msgspec

from nodeagent import __version__
from nodeagent.cli.answers.places import (
    ADMIN_SOCKET,
    SimulationRecord,
    find_admin_socket,
    find_simulations_dir,
    has_own_agent,
    list_simulations,
)
from nodeagent.cli.answers.table import SIMULATION_VARIABLE, clean
from nodeagent.cli.frame.exit_codes import ExitCode
from nodeagent.cli.main import CommandFailed
from nodeagent.components.web.api.admin import CommandDone
from nodeagent.components.web.api.records import SIMULATED_HEADER
from nodeagent.config.schema import Settings
from nodeagent.edge.host.errors import DirectoryNotPrivate
from nodeagent.edge.host.files.private_directory import name_user
from nodeagent.edge.host.processes.socket_owners import is_trusted, read_peer_user, read_port_users
from nodeagent.edge.http.messages import SERVER
from nodeagent.model.orders import C, Order

T = TypeVar("T")

TIMEOUT_SECONDS = 10.0
SILENCE_SECONDS = 40.0
"""A stream sends a sign of life every fifteen seconds."""
AS_ROOT = ": run this as root, for whom the admin socket needs neither password nor certificate"


CHOOSE = f"choose one with --simulation NAME or {SIMULATION_VARIABLE}=NAME"


class AgentClient:
    """The connection to a running agent, for a single question."""

    def __init__(self, connection: http.client.HTTPConnection, where: str, *, port: int = 0, hint: str = "") -> None:
        """`port` is the TCP port, where any program may listen; 0 for a socket file, which only the agent makes.

        `hint`: Text for errors about a foreign program's answer.
        """
        self._connection, self.where, self._port, self._hint = connection, where, port, hint
        # Or a second question would go to port 80, and its listener's answer be taken for the agent's.
        connection.auto_open = 0
        self.is_for_node = False
        """Whether a simulation's answer is refused."""
        self.simulated = ""
        """The hardware profile of the simulation that answered; empty for a node."""

    def get(self, path: str) -> bytes:
        """The body of an answer."""
        return self._ask("GET", path, None)

    def read(self, path: str, kind: type[T]) -> T:
        """A decoded answer."""
        return self.decode(self.get(path), kind)

    def decode(self, content: bytes, kind: type[T]) -> T:
        """A decoded body, or a decoded event of a stream."""
        try:
            return msgspec.json.decode(content, type=kind)
        except (msgspec.DecodeError, RecursionError) as error:
            raise CommandFailed(
                f"{self.where} answers in a form that nodeagent {__version__} does not know ({error}); "
                "is the running agent of another release? restart it",
                ExitCode.UNREACHABLE,
            ) from error

    def follow(self, path: str) -> Iterator[tuple[str, bytes]]:
        """Server-sent events as they come, by name and data, until the agent goes away."""
        try:
            self._connection.request("GET", path)
            answer = self._connection.getresponse()
            self._judge_answerer(answer)
            if answer.status != HTTPStatus.OK:
                raise self._refuse(answer.read(), answer.status)
            if self._connection.sock is not None:
                self._connection.sock.settimeout(SILENCE_SECONDS)
            name = ""
            for line in answer:
                field, _, value = line.rstrip(b"\n").partition(b": ")
                if field == b"event":
                    name = value.decode()
                elif field == b"data":
                    yield name, value
        except (OSError, http.client.HTTPException) as error:
            raise CommandFailed(f"the agent at {self.where} went away: {error}", ExitCode.UNREACHABLE) from error
        finally:
            self._connection.close()
        raise CommandFailed(f"the agent at {self.where} went away", ExitCode.UNREACHABLE)

    def give(self, order: Order[C], command: C) -> str:
        """Have the agent carry an order out; the agent's report in a sentence."""
        return self.decode(self._ask("POST", order.path, msgspec.json.encode(command)), CommandDone).done

    def _ask(self, method: str, path: str, body: bytes | None) -> bytes:
        try:
            self._connection.request(method, path, body=body)
            answer = self._connection.getresponse()
            self._judge_answerer(answer)
            content = answer.read()
        except http.client.BadStatusLine as error:
            if not self._port or isinstance(error, http.client.RemoteDisconnected):
                raise self._explain_silence(error) from error
            raise self._describe_stranger("something that is not HTTP, or is HTTPS") from error
        except (OSError, http.client.HTTPException) as error:
            raise self._explain_silence(error) from error
        finally:
            self._connection.close()
        if answer.status < http.client.BAD_REQUEST or path == "/readyz":
            return content
        raise self._refuse(content, answer.status)

    def _refuse(self, content: bytes, status: int) -> CommandFailed:
        if status in {HTTPStatus.UNAUTHORIZED, HTTPStatus.FORBIDDEN}:
            return CommandFailed(f"{self.where} answers only whom it knows{AS_ROOT}", ExitCode.UNREACHABLE)
        return CommandFailed(_describe_problem(content, status), ExitCode.BAD_INPUT)

    def _judge_answerer(self, answer: http.client.HTTPResponse) -> None:
        server = "".join(letter for letter in answer.headers.get("Server", "") if letter.isprintable())[:80]
        if self._port and server != SERVER:
            raise self._describe_stranger(f"{answer.status} by {server or 'a program that does not give its name'}")
        self.simulated = answer.headers.get(SIMULATED_HEADER, "")
        if self.simulated and self.is_for_node:
            raise CommandFailed(
                f"{self.where} is answered by a simulation (a made-up {clean(self.simulated)}), and this node's "
                "agent does not run: start it, or ask the simulation with --simulation NAME",
                ExitCode.UNREACHABLE,
            )

    def _describe_stranger(self, answered: str) -> CommandFailed:
        return CommandFailed(
            f"{self.where} (http.listen) is answered by another program than nodeagent: {answered}{self._hint}; "
            f"`ss -ltnp 'sport = :{self._port}'` names it. Start the agent, or say where it listens with --config or "
            "--set http.listen=",
            ExitCode.UNREACHABLE,
        )

    def _explain_silence(self, error: Exception) -> CommandFailed:
        return CommandFailed(f"the agent at {self.where} does not answer: {error}{self._hint}", ExitCode.UNREACHABLE)


def _describe_problem(content: bytes, status: int) -> str:
    try:
        problem = json.loads(content)
    except (ValueError, RecursionError):
        problem = None
    if not isinstance(problem, dict):
        return f"the agent answered {status}"
    detail = problem.get("detail")
    return f"{problem.get('title', status)}: {detail}" if detail else str(problem.get("title", status))


def find_agent(
    settings: Settings, environ: Mapping[str, str], *, change: bool = False, to_simulation: bool = False
) -> AgentClient:
    """The agent of these settings; with `to_simulation` this user's simulation first.

    With the name of a simulation no other agent is asked. An unnamed simulation answers only where this machine has no
    agent of its own: an answer about simulated GPUs must never stand in for a node whose agent is down.
    """
    named = environ.get(SIMULATION_VARIABLE, "")
    run_dir = settings.node.run_dir
    tried: list[str] = []

    def find_own() -> AgentClient | None:
        path = run_dir / ADMIN_SOCKET
        try:
            return _connect_unix(path, str(path), tried)
        except PermissionError as refusal:
            return _go_by_port(settings, path, refusal, change=change)

    def find_simulation() -> AgentClient | None:
        return _find_simulation(environ, named, tried)

    def find_port() -> AgentClient | None:
        agent = None if change else _connect_tcp(settings, tried)
        if agent is not None:
            agent.is_for_node = find_simulation not in ways
        return agent

    if named:
        ways: tuple[Callable[[], AgentClient | None], ...] = (find_simulation,)
    elif run_dir != Settings().node.run_dir or (has_own_agent(run_dir) and not to_simulation):
        ways = (find_own, find_port)
    else:
        ways = (find_simulation, find_own) if to_simulation else (find_own, find_simulation, find_port)
    for find in ways:
        agent = find()
        if agent is not None:
            return agent
    start = "start one with `nodeagent run` or `nodeagent simulate`"
    running = () if find_simulation in ways else _list_nameable(environ)
    asked = f"; of the made-up nodes that run{_list(running)}, ask one with --simulation NAME" if running else ""
    raise CommandFailed(f"no agent answers at {', '.join(tried)}; {start}{asked}", ExitCode.UNREACHABLE)


def _list_nameable(environ: Mapping[str, str]) -> Sequence[SimulationRecord]:
    try:
        return list_simulations(environ)
    except DirectoryNotPrivate:
        return ()  # another user's simulations, closed to this user


def _go_by_port(settings: Settings, path: Path, refusal: OSError, *, change: bool) -> AgentClient:
    """Ask over the port, for reads alone, where this user may not use the agent's socket, as with nvidia-smi."""
    if change:
        raise CommandFailed(
            f"only root and the agent's user may change anything: {path} is not for you; run this as root",
            ExitCode.UNREACHABLE,
        ) from refusal
    agent = _connect_tcp(settings, [])
    if agent is None:
        raise CommandFailed(
            f"not allowed to use {path}, and nobody answers at {settings.http.listen}: run this as root, "
            "or say with --set http.listen=… where the agent listens",
            ExitCode.UNREACHABLE,
        ) from refusal
    return agent


def _find_simulation(environ: Mapping[str, str], named: str, tried: list[str]) -> AgentClient | None:
    directory = find_simulations_dir(environ)
    try:
        running = list_simulations(environ)
    except DirectoryNotPrivate as error:
        if named:
            raise CommandFailed(str(error), ExitCode.UNREACHABLE) from error
        tried.append(f"{directory} (not looked into: {error})")
        return None
    chosen = [one for one in running if one.name == named] if named else list(running)
    if len(chosen) > 1:
        raise CommandFailed(f"several simulations run{_list(running)}; {CHOOSE}", ExitCode.BAD_INPUT)
    if named and not chosen:
        raise CommandFailed(
            f"no simulation {named!r} runs in {directory}{_list(running) or ': none does'}; {CHOOSE}",
            ExitCode.UNREACHABLE,
        )
    if not chosen:
        tried.append(str(directory))
        return None
    return _connect_unix(find_admin_socket(directory / chosen[0].name), f"simulation {chosen[0].name}", tried)


def _list(running: Sequence[SimulationRecord]) -> str:
    return f": {clean('; '.join(map(str, running)))}" if running else ""


def _connect_unix(path: Path, where: str, tried: list[str]) -> AgentClient | None:
    connected = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    connected.settimeout(TIMEOUT_SECONDS)
    try:
        connected.connect(os.fspath(path))
        _check_owners(str(path), {read_peer_user(connected)})
    except (PermissionError, CommandFailed):
        connected.close()
        raise
    except OSError:
        connected.close()
        tried.append(where)
        return None
    connection = http.client.HTTPConnection("localhost")
    connection.sock = connected
    return AgentClient(connection, where)


def _connect_tcp(settings: Settings, tried: list[str]) -> AgentClient | None:
    address = settings.http.listen
    local = {"": "127.0.0.1", "0.0.0.0": "127.0.0.1", "::": "::1"}  # noqa: S104 - compared, not bound
    connection = http.client.HTTPConnection(
        local.get(address.host, address.host), address.port, timeout=TIMEOUT_SECONDS
    )
    try:
        connection.connect()
    except OSError:
        tried.append(str(address))
        return None
    try:
        _check_owners(str(address), read_port_users(address.port))
    except CommandFailed:
        connection.close()
        raise
    hint = f" (http.web_config_file is set, it may want TLS){AS_ROOT}" if settings.http.web_config_file else ""
    return AgentClient(connection, f"http://{address}", port=address.port, hint=hint)


def _check_owners(where: str, users: Collection[int]) -> None:
    """Refuse an answer from another user's process, as an answer is worth as much as its author."""
    strangers = sorted(user for user in users if not is_trusted(user))
    if not users:
        raise CommandFailed(f"{where} answers, but whose process does cannot be seen here", ExitCode.UNREACHABLE)
    if strangers:
        raise CommandFailed(
            f"{where} is answered by {' and '.join(map(name_user, strangers))}, neither root nor you: "
            "what it says is not taken for the agent's word",
            ExitCode.UNREACHABLE,
        )
