"""`nodeagent top` at a real pseudo-terminal: it takes it, follows it, and gives it back whatever happens."""

import fcntl
import http.server
import io
import os
import pty
import re
import select
import signal
import socketserver
import struct
import subprocess
import sys
import termios
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, Self

import pytest
from msgspec import json

from nodeagent.cli.top.terminal import ENDING, ENTER, LEAVE, EndedBySignal, Terminal
from tests.unit.cli.top.test_view import make_record, make_state
from tests.unit.components.exporter.builders import allocate, make_sample

PATIENCE_SECONDS = 60.0
STATE = json.encode(make_state(make_record(make_sample(), allocate("bert-0", make_sample().uuid))))


class _Server(socketserver.ThreadingMixIn, socketserver.UnixStreamServer):
    daemon_threads = True


class _Handler(http.server.BaseHTTPRequestHandler):
    def do_GET(self) -> None:
        self.send_response(200)
        self.send_header("Content-Length", str(len(STATE)))
        self.end_headers()
        self.wfile.write(STATE)

    def log_message(self, *_: Any) -> None:
        pass

    def address_string(self) -> str:
        return "unix"


@contextmanager
def serve_state(directory: Path) -> Iterator[None]:
    """An agent that always says the same, where the command looks for one."""
    with _Server(str(directory / "admin.sock"), _Handler) as server:
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.05})
        thread.start()
        try:
            yield
        finally:
            server.shutdown()
            thread.join()


class Session:
    """A person before `nodeagent top`."""

    def __init__(self, directory: Path, *words: str, no_colour: bool = False) -> None:
        self._keyboard, self._terminal = pty.openpty()
        self.resize(100, 24)
        self.before = termios.tcgetattr(self._terminal)
        self.seen = ""
        environ = {**os.environ, "TERM": "xterm", "TMPDIR": str(directory)} | ({"NO_COLOR": "1"} if no_colour else {})
        settings = ("--set", f"node.run_dir={directory}", "--set", "http.listen=127.0.0.1:1")
        self.process = subprocess.Popen(
            [sys.executable, "-m", "nodeagent", "top", *settings, *words],
            stdin=self._terminal,
            stdout=self._terminal,
            stderr=self._terminal,
            env=environ,
            process_group=0,
        )

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        if self.process.poll() is None:
            self.process.send_signal(signal.SIGCONT)
            self.process.kill()
        self.process.wait(PATIENCE_SECONDS)
        os.close(self._keyboard)
        os.close(self._terminal)

    def resize(self, columns: int, lines: int) -> None:
        fcntl.ioctl(self._terminal, termios.TIOCSWINSZ, struct.pack("HHHH", lines, columns, 0, 0))

    def press(self, keys: str) -> None:
        os.write(self._keyboard, keys.encode())

    def wait_for(self, text: str) -> str:
        """What was seen since the last time, up to where this is seen."""
        deadline = time.monotonic() + PATIENCE_SECONDS
        while text not in self.seen:
            ready, _, _ = select.select([self._keyboard], [], [], max(0.0, deadline - time.monotonic()))
            assert ready, f"{text!r} did not come, this did at last: {self.seen[-4000:]!r}"
            self.seen += os.read(self._keyboard, 65536).decode()
        found, _, self.seen = self.seen.partition(text)
        return found + text

    def wait_for_end(self) -> int:
        """Its exit status; the terminal is as it was."""
        self.wait_for(LEAVE)
        code = self.process.wait(PATIENCE_SECONDS)
        assert termios.tcgetattr(self._terminal) == self.before
        return code

    def is_taken(self) -> bool:
        """Whether keys come one by one."""
        return not termios.tcgetattr(self._terminal)[3] & termios.ICANON


def test_keys_lead_through_the_screens_and_out(short_dir: Path) -> None:
    """The list, the details, the help, a filter, the end."""
    with serve_state(short_dir), Session(short_dir) as session:
        session.wait_for(ENTER)
        session.wait_for("ml/bert-0")
        assert session.is_taken()
        session.press("\r")
        session.wait_for("1980 MHz")
        session.press("\x1b")
        session.wait_for("Enter details")
        session.press("?")
        session.wait_for("Ctrl-Z")
        session.press("\x1b[D/zzz\r")
        session.wait_for("nothing contains 'zzz'")
        session.press("q")
        assert session.wait_for_end() == 0


@pytest.mark.parametrize(("number", "code"), [(signal.SIGINT, 130), (signal.SIGTERM, -15), (signal.SIGHUP, -1)])
def test_a_signal_ends_it_after_the_terminal_was_given_back(short_dir: Path, number: int, code: int) -> None:
    """And by that signal, so that whoever started it knows."""
    with serve_state(short_dir), Session(short_dir) as session:
        session.wait_for("ml/bert-0")
        session.process.send_signal(number)
        assert session.wait_for_end() == code


def test_it_is_suspended_and_comes_back(short_dir: Path) -> None:
    """Ctrl-Z leaves the shell a terminal as it was, `fg` draws the screen anew."""
    with serve_state(short_dir), Session(short_dir) as session:
        session.wait_for("ml/bert-0")
        session.process.send_signal(signal.SIGTSTP)
        session.wait_for(LEAVE)
        _, status = os.waitpid(session.process.pid, os.WUNTRACED)
        assert os.WIFSTOPPED(status)
        assert termios.tcgetattr(session._terminal) == session.before
        session.process.send_signal(signal.SIGCONT)
        session.wait_for(ENTER)
        assert ENTER not in session.wait_for("ml/bert-0")  # a second time would lose where the cursor was
        assert session.is_taken()
        session.press("q")
        assert session.wait_for_end() == 0


@pytest.mark.long
def test_it_follows_the_size_of_the_window(short_dir: Path) -> None:
    """On the spot, not at the next look."""
    with serve_state(short_dir), Session(short_dir) as session:
        session.wait_for("ml/bert-0")
        session.wait_for("Enter details")
        session.resize(50, 6)
        session.process.send_signal(signal.SIGWINCH)
        session.wait_for("\x1b[H")
        screen = session.wait_for("\x1b[H").removesuffix("\x1b[H")
        assert screen.count("\r\n") == 5
        session.press("q")
        assert session.wait_for_end() == 0


@pytest.mark.long
def test_without_an_agent_it_says_so_and_goes_on(short_dir: Path) -> None:
    with Session(short_dir) as session:
        session.wait_for("no agent answers")
        with serve_state(short_dir):
            session.wait_for("ml/bert-0")
        session.press("q")
        assert session.wait_for_end() == 0


def test_no_colour_is_kept_and_a_missing_keyboard_means_one_look(short_dir: Path) -> None:
    """NO_COLOR: no style at all; `< /dev/null`: one table, and the terminal is not touched."""
    with serve_state(short_dir):
        with Session(short_dir, no_colour=True) as session:
            session.wait_for(ENTER)
            assert not re.search("\x1b\\[[0-9;]*m", session.wait_for("ml/bert-0"))
            session.press("q")
            assert session.wait_for_end() == 0
        with Session(short_dir, "--once") as session:
            assert ENTER not in session.wait_for("ml/bert-0")
            assert session.process.wait(PATIENCE_SECONDS) == 0


def test_a_mistake_of_ours_leaves_the_terminal_as_it_was() -> None:
    """Whoever sees a traceback sees it on their own screen, and types on."""
    keyboard, terminal = pty.openpty()
    try:
        before, handlers = termios.tcgetattr(terminal), [signal.getsignal(number) for number in ENDING]
        with os.fdopen(os.dup(terminal), "w+b", buffering=0) as raw:
            stream = io.TextIOWrapper(raw, write_through=True)
            with pytest.raises(ZeroDivisionError), Terminal(stream, stream):
                raise ZeroDivisionError
        assert termios.tcgetattr(terminal) == before
        assert [signal.getsignal(number) for number in ENDING] == handlers
        seen = b""
        while len(seen) < len(ENTER + LEAVE):  # a terminal hands on each write by itself
            assert select.select([keyboard], [], [], PATIENCE_SECONDS)[0], seen
            seen += os.read(keyboard, 4096)
        assert seen.decode() == ENTER + LEAVE
    finally:
        os.close(keyboard)
        os.close(terminal)


def test_a_signal_whose_error_the_interpreter_drops_ends_it_all_the_same() -> None:
    """An error that is raised while objects are freed goes nowhere: the next wait for a key raises it again."""
    keyboard, terminal = pty.openpty()
    try:
        with os.fdopen(os.dup(terminal), "w+b", buffering=0) as raw:
            stream = io.TextIOWrapper(raw, write_through=True)
            with Terminal(stream, stream) as taken:
                with suppress(EndedBySignal):
                    signal.raise_signal(signal.SIGHUP)
                with pytest.raises(EndedBySignal):
                    taken.wait()
    finally:
        os.close(keyboard)
        os.close(terminal)
