"""The command line of a user for whom the admin socket is not: looking goes over the port, changing does not."""

import os
import socket
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest
from msgspec import json

from nodeagent.components.web.api.fractions import FractionsRecord
from nodeagent.edge.http.messages import SERVER
from tests.support.nodes import make_rich_state
from tests.support.programs.command_line import run_here

ANSWERS = {
    "/api/v1/state": json.encode(make_rich_state()),
    "/api/v1/gpus": json.encode(make_rich_state().gpus),
    "/api/v1/allocations": json.encode(make_rich_state().allocations),
    "/api/v1/parts": json.encode(FractionsRecord()),
    "/api/v1/labels": json.encode(make_rich_state().labels),
    "/api/v1/events?follow=false": b"[]",
    "/api/v1/conditions": b"[]",
}
LOOKING = ("status", "gpu list", "gpu health", "top", "allocations", "labels", "events")
CHANGING = ("reload", "release", "resume", "gpu clear 0 --reason x", "simulate fault")


Run = Callable[[str, int], tuple[int, str, str]]


@contextmanager
def serve_port(status: HTTPStatus = HTTPStatus.OK) -> Iterator[int]:
    """An agent's port, answering every question with this status."""

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            body = ANSWERS[self.path]
            self.send_response(status)
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def version_string(self) -> str:
            return SERVER

        def log_message(self, *_: object) -> None:
            pass

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.05})
        thread.start()
        try:
            yield server.server_address[1]
        finally:
            server.shutdown()
            thread.join()


@pytest.fixture
def run_refused(short_dir: Path, monkeypatch: pytest.MonkeyPatch) -> Run:
    """Commands of a user whom the socket refuses; root itself is never refused, so that the refusal is made."""
    monkeypatch.setenv("TMPDIR", str(short_dir))
    monkeypatch.delenv("XDG_RUNTIME_DIR", raising=False)

    class Refused(socket.socket):
        def connect(self, address: object) -> None:
            if address == os.fspath(short_dir / "admin.sock"):
                raise PermissionError(13, "permission denied")
            super().connect(address)  # type: ignore[arg-type]

    monkeypatch.setattr("nodeagent.cli.answers.client.socket.socket", Refused)

    def run(line: str, port: int) -> tuple[int, str, str]:
        settings = ("--set", f"node.run_dir={short_dir}", "--set", f"http.listen=127.0.0.1:{port}")
        return run_here(*line.split(), *settings)

    return run


@pytest.mark.parametrize("line", LOOKING)
def test_looking_goes_over_the_port(line: str, run_refused: Run) -> None:
    """By itself, and with the same answer."""
    with serve_port() as port:
        code, out, err = run_refused(line, port)
    assert (code in {0, 1}, err) == (True, "")
    assert out


@pytest.mark.parametrize("line", CHANGING)
def test_changing_says_who_may(line: str, run_refused: Run) -> None:
    """One sentence, and nobody is asked over the port."""
    code, out, err = run_refused(line, 1)
    assert (code, out, err.count("\n")) == (4, "", 1)
    assert "only root and the agent's user may change anything" in err
    assert "admin.sock" in err


def test_where_the_port_is_elsewhere_it_can_be_named(run_refused: Run) -> None:
    """The sentence has the address that was tried."""
    code, _, err = run_refused("status", 1)
    assert code == 4
    assert "127.0.0.1:1" in err
    assert "--set http.listen=" in err


@pytest.mark.parametrize("status", [HTTPStatus.UNAUTHORIZED, HTTPStatus.FORBIDDEN])
def test_a_port_with_passwords_says_that_root_needs_none(status: HTTPStatus, run_refused: Run) -> None:
    """Nobody is to type a password into a command line."""
    with serve_port(status) as port:
        code, _, err = run_refused("status", port)
    assert code == 4
    assert "answers only whom it knows: run this as root" in err


def test_a_port_with_tls_is_told_from_one_that_is_broken(run_refused: Run, short_dir: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as listening:
        port = listening.getsockname()[1]

        def hang_up() -> None:
            listening.accept()[0].close()

        thread = threading.Thread(target=hang_up)
        thread.start()
        code, _, err = run_refused(f"status --set http.web_config_file={short_dir}/web.yaml", port)
        thread.join()
    assert code == 4
    assert "it may want TLS" in err
