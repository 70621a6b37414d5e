"""A whole agent in a process of its own, as a person would start it, and its endpoints."""

import contextlib
import http.client
import json
import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

PATIENCE_SECONDS = 30.0
"""Generous: the machines are noisy, and no test measures speed."""


class AgentProcess:
    """One running agent."""

    def __init__(self, process: subprocess.Popen[str], directory: Path) -> None:
        self.process, self.directory = process, directory
        self.url = ""
        self.output: list[str] = []

    @property
    def admin_socket(self) -> Path:
        return self.directory / f"nodeagent-simulation-{os.geteuid()}" / "run" / "admin.sock"

    def wait_announced(self) -> None:
        """Read standard output until the page's address is there."""
        assert self.process.stdout is not None
        for line in self.process.stdout:
            self.output.append(line)
            if "status page" in line:
                self.url = line.split()[-1]
            if "stop it" in line:
                return
        assert self.process.stderr is not None
        raise AssertionError(f"the agent ended: {self.process.stderr.read()}")

    def get(self, path: str) -> tuple[int, str]:
        """Status and body over TCP."""
        host, port = self.url.removeprefix("http://").rstrip("/").rsplit(":", 1)
        connection = http.client.HTTPConnection(host, int(port), timeout=PATIENCE_SECONDS)
        with contextlib.closing(connection):
            connection.request("GET", path)
            answer = connection.getresponse()
            return answer.status, answer.read().decode()

    def get_json(self, path: str) -> Any:
        return json.loads(self.get(path)[1])

    def post(self, path: str, command: dict[str, object]) -> tuple[int, Any]:
        """Status and body over the admin socket."""
        connection = http.client.HTTPConnection("localhost")
        connection.sock = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        connection.sock.settimeout(PATIENCE_SECONDS)
        with contextlib.closing(connection):
            connection.sock.connect(str(self.admin_socket))
            connection.request("POST", path, body=json.dumps(command))
            answer = connection.getresponse()
            return answer.status, json.loads(answer.read())

    def wait_for(self, path: str, wanted: str) -> str:
        """The body once it contains `wanted`."""
        deadline = time.monotonic() + PATIENCE_SECONDS
        body = ""
        while time.monotonic() < deadline:
            body = self.get(path)[1]
            if wanted in body:
                return body
            time.sleep(0.05)
        raise AssertionError(f"{path} never said {wanted!r}; last: {body}")

    def stop(self, sent: signal.Signals = signal.SIGTERM) -> int:
        """Ask it to end; its exit status."""
        if self.process.poll() is None:
            self.process.send_signal(sent)
        with contextlib.suppress(subprocess.TimeoutExpired):
            self.process.wait(PATIENCE_SECONDS)
        if self.process.poll() is None:
            self.process.kill()
            raise AssertionError("the agent did not stop")
        return self.process.returncode


def command_environment(directory: Path) -> dict[str, str]:
    """An environment in which a simulation finds its own directory and nothing else."""
    kept = {
        name: os.environ[name] for name in ("PATH", "COVERAGE_PROCESS_START", "COVERAGE_FILE") if name in os.environ
    }
    return {**kept, "TMPDIR": str(directory), "HOME": str(directory), "NO_COLOR": "1"}


def run_command(
    directory: Path, *words: str, timeout_seconds: float = PATIENCE_SECONDS
) -> subprocess.CompletedProcess[str]:
    """One command of the command line, to its end."""
    return subprocess.run(
        [sys.executable, "-m", "nodeagent", *words],
        env=command_environment(directory),
        capture_output=True,
        text=True,
        timeout=timeout_seconds,
        check=False,
    )


@contextlib.contextmanager
def running_simulation(directory: Path, *words: str) -> Iterator[AgentProcess]:
    """A simulation on a free port, stopped at the end of the block."""
    process = subprocess.Popen(
        [sys.executable, "-m", "nodeagent", "simulate", "--set", "http.listen=127.0.0.1:0", *words],
        env=command_environment(directory),
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    agent = AgentProcess(process, directory)
    try:
        agent.wait_announced()
        yield agent
    finally:
        agent.stop()
        for stream in (process.stdout, process.stderr):
            if stream is not None:
                stream.close()
