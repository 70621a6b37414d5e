"""Another program on the agent's port, or an agent of another release: one line, never a traceback."""

import json
import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest

from nodeagent.cli.answers.client import AgentClient, find_agent
from nodeagent.cli.frame.exit_codes import ExitCode
from nodeagent.cli.main import CommandFailed
from nodeagent.components.web.api.records import SIMULATED_HEADER, StateRecord
from nodeagent.config.load import load_settings
from nodeagent.edge.http.messages import SERVER
from tests.support.programs.command_line import run_here

ASKING = (
    ("status",),
    ("status", "--json"),
    ("top", "--once"),
    ("events",),
    ("events", "--follow"),
    ("events", "--gpu", "0"),
    ("gpu", "health"),
    ("allocations",),
    ("allocations", "--history"),
    ("labels",),
)
DEEP = b"[" * 100_000
ANSWERS = {
    "page": (200, b"<html>It works!</html>"),
    "JSON": (200, b'{"status": "ok"}'),
    "list": (200, b"[]"),
    "nested": (200, DEEP),
    "not found": (404, b"not found"),
    "error": (500, b"[]"),
    "nested error": (500, DEEP),
}


@contextmanager
def answering(status: int, body: bytes, server: str, simulated: str = "") -> Iterator[int]:
    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            self.send_response_only(status)
            self.send_header("Server", server)
            if simulated:
                self.send_header(SIMULATED_HEADER, simulated)
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, format: str, *args: object) -> None:  # noqa: A002 - the library's name
            pass

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as listening:
        thread = threading.Thread(target=listening.serve_forever, args=(0.01,))
        thread.start()
        try:
            yield listening.server_port
        finally:
            listening.shutdown()
            thread.join()


@pytest.fixture(autouse=True)
def _nowhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """No simulation of this user's is found."""
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    monkeypatch.delenv("XDG_RUNTIME_DIR", raising=False)


def settings(tmp_path: Path, port: int) -> tuple[str, ...]:
    return ("--set", f"node.run_dir={tmp_path}", "--set", f"http.listen=127.0.0.1:{port}")


@pytest.mark.parametrize("answer", ANSWERS.values(), ids=ANSWERS.keys())
@pytest.mark.parametrize("words", ASKING, ids=" ".join)
def test_another_program_is_named_as_such(tmp_path: Path, words: tuple[str, ...], answer: tuple[int, bytes]) -> None:
    """Whose port it is, what answered, and how to find out who it is; whatever it answered."""
    with answering(*answer, server="nginx/1.2") as port:
        code, out, err = run_here(*words, *settings(tmp_path, port))
    assert code == ExitCode.UNREACHABLE
    assert out == ""
    assert len(err.splitlines()) == 1
    assert f"127.0.0.1:{port} (http.listen) is answered by another program than nodeagent" in err
    assert f"{answer[0]} by nginx/1.2" in err
    assert f"ss -ltnp 'sport = :{port}'" in err


@pytest.mark.parametrize("words", ASKING, ids=" ".join)
def test_an_agent_whose_words_are_not_known_is_not_another_program(tmp_path: Path, words: tuple[str, ...]) -> None:
    """After an upgrade the agent before may still run: the person is told to restart it."""
    with answering(200, b'{"nodes": 3', server=SERVER) as port:
        code, out, err = run_here(*words, *settings(tmp_path, port))
    assert (code, out) == (ExitCode.UNREACHABLE, "")
    assert "of another release? restart it" in err or "went away" in err
    assert len(err.splitlines()) == 1


@pytest.mark.parametrize("words", ASKING, ids=" ".join)
def test_a_simulation_at_the_port_of_an_agent_is_not_that_agent(tmp_path: Path, words: tuple[str, ...]) -> None:
    """Its made-up GPUs would be taken for those of the node whose agent is down."""
    with answering(200, b"{}", server=SERVER, simulated="dgx-h100") as port:
        code, out, err = run_here(*words, *settings(tmp_path, port))
    assert (code, out, len(err.splitlines())) == (ExitCode.UNREACHABLE, "", 1)
    assert f"127.0.0.1:{port} is answered by a simulation (a made-up dgx-h100)" in err
    assert "--simulation NAME" in err


def test_a_program_that_speaks_no_http_is_another_one_too(tmp_path: Path) -> None:
    """An SSH server, say, or the TLS port of something."""
    with socket.create_server(("127.0.0.1", 0)) as listener:

        def greet() -> None:
            caller, _ = listener.accept()
            with caller:
                caller.sendall(b"SSH-2.0-OpenSSH\r\n")
                caller.recv(1024)

        thread = threading.Thread(target=greet)
        thread.start()
        code, _, err = run_here("status", *settings(tmp_path, listener.getsockname()[1]))
        thread.join()
    assert code == ExitCode.UNREACHABLE
    assert "another program than nodeagent: something that is not HTTP" in err


def test_a_caller_that_is_hung_up_on_says_so(tmp_path: Path) -> None:
    """Nothing was said, so nobody knows who it was."""
    with socket.create_server(("127.0.0.1", 0)) as listener:

        def hang_up() -> None:
            caller, _ = listener.accept()
            caller.close()

        thread = threading.Thread(target=hang_up)
        thread.start()
        code, _, err = run_here("status", *settings(tmp_path, listener.getsockname()[1]))
        thread.join()
    assert code == ExitCode.UNREACHABLE
    assert "does not answer" in err


def test_commands_that_can_do_without_an_agent_do_so(tmp_path: Path) -> None:
    """The GPUs are asked themselves, as if nothing listened; the doctor names the stranger."""
    with answering(200, b"hello", server="nginx") as port:
        words = settings(tmp_path, port)
        code, out, _ = run_here("gpu", "list", *words, "--set", "gpus.source=simulated:dgx-h100", "--json")
        assert (code, len(json.loads(out)["gpus"])) == (ExitCode.OK, 8)
        _, out, _ = run_here("doctor", *words, "--set", "gpus.source=simulated:dgx-h100")
    assert "another program than nodeagent" in out


def test_an_error_of_the_agent_is_its_own_words(tmp_path: Path) -> None:
    """Its problem document, or its status where there is none."""
    for body, said in ((b'{"title": "no", "detail": "because"}', "no: because"), (b"[1]", "the agent answered 500")):
        with answering(500, body, server=SERVER) as port:
            overrides = [f"node.run_dir={tmp_path}", f"http.listen=127.0.0.1:{port}"]
            agent = find_agent(load_settings(environ={}, overrides=overrides).settings, {"TMPDIR": str(tmp_path)})
            assert isinstance(agent, AgentClient)
            with pytest.raises(CommandFailed, match=said) as failed:
                agent.read("/api/v1/state", StateRecord)
        assert failed.value.code is ExitCode.BAD_INPUT
