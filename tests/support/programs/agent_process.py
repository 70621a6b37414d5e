"""A whole agent in a process of its own, as a person would start it, and its endpoints."""

import contextlib
import http.client
import json
import os
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

from nodeagent.cli.answers.places import find_admin_socket, find_simulations_dir, read_record
from nodeagent.cli.answers.table import SIMULATION_VARIABLE

PATIENCE_SECONDS = 60.0
"""Generous: the machines are noisy, and no test measures speed."""

LIMITED = """
import os, resource, sys
limit = int(sys.argv[1])
resource.setrlimit(resource.RLIMIT_NOFILE, (limit, limit))
os.execv(sys.argv[2], sys.argv[2:])
"""
"""Runs a command that may have only so many files open."""


class AgentProcess:
    def __init__(self, process: subprocess.Popen[str], directory: Path) -> None:
        self.process, self.directory = process, directory
        self.url = ""
        self.output: list[str] = []

    @property
    def admin_socket(self) -> Path:
        for place in (self.directory / f"nodeagent-simulations-{os.geteuid()}").glob("*"):
            record = read_record(place)
            if record is not None and record.pid == self.process.pid:
                return find_admin_socket(place)
        return find_admin_socket(self.directory)

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

    def wait_started(self) -> None:
        """Read the log until the address is there; a thread goes on reading, so that the agent never waits for us."""
        assert self.process.stderr is not None
        for line in self.process.stderr:
            self.output.append(line)
            if "agent_started" in line:
                self.url = json.loads(line)["url"]
                break
        else:
            raise AssertionError(f"the agent ended: {''.join(self.output)}")
        threading.Thread(target=self._keep_reading, name="agent log", daemon=True).start()

    def _keep_reading(self) -> None:
        assert self.process.stderr is not None
        with contextlib.suppress(ValueError):  # closed under us at the end of the test
            self.output.extend(self.process.stderr)

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

    def inject(self, fault: str, *arguments: str) -> None:
        """A fault of a simulated node; of the same door as `nodeagent simulate fault`, without a process of its own."""
        status, answer = self.post("/api/v1/faults", {"fault": fault, "arguments": arguments})
        assert status == 200, answer

    def wait_for(self, path: str, wanted: str) -> str:
        """The body once it contains `wanted`."""
        return self.wait_until(path, lambda body: wanted in body, f"never said {wanted!r}")

    def wait_gone(self, path: str, unwanted: str) -> str:
        """The body once it does not contain `unwanted` any more."""
        return self.wait_until(path, lambda body: unwanted not in body, f"never stopped saying {unwanted!r}")

    def wait_until(self, path: str, is_so: Callable[[str], bool], complaint: str) -> str:
        deadline = time.monotonic() + PATIENCE_SECONDS
        body = ""
        while time.monotonic() < deadline:
            body = self.get(path)[1]
            if is_so(body):
                return body
            time.sleep(0.05)
        raise AssertionError(f"{path} {complaint}; last: {body}")

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
    # Coverage tells its children through the environment how to go on measuring.
    kept = {name: value for name, value in os.environ.items() if name == "PATH" or name.startswith("COV")}
    own = {"TMPDIR": str(directory), "HOME": str(directory), "NODEAGENT_HTTP__LISTEN": "127.0.0.1:0"}
    return {**kept, **own, "NO_COLOR": "1"}


def choose_answerer(directory: Path) -> dict[str, str]:
    """Variables by which the simulations of this directory are meant, and never an agent of this machine.

    Unnamed, a simulation answers only where the machine has no agent of its own; of several, a command asks which.
    """
    places = [path.name for path in find_simulations_dir({"TMPDIR": str(directory)}).glob("*/")]
    if not places:
        return {"NODEAGENT_NODE__RUN_DIR": str(directory / "run")}
    return {SIMULATION_VARIABLE: places[0]} if len(places) == 1 else {}


def run_command(
    directory: Path, *words: str, timeout_seconds: float = PATIENCE_SECONDS, front: Sequence[str] = ()
) -> subprocess.CompletedProcess[str]:
    """One command of the command line, to its end; `front` is a command that becomes it."""
    return subprocess.run(
        [*front, sys.executable, "-m", "nodeagent", *words],
        env={**command_environment(directory), **choose_answerer(directory)},
        capture_output=True,
        text=True,
        timeout=timeout_seconds,
        check=False,
    )


@contextlib.contextmanager
def running_simulation(directory: Path, *words: str) -> Iterator[AgentProcess]:
    """A simulation on a free port, stopped at the end of the block."""
    with starting(directory, "simulate", "--set", "http.listen=127.0.0.1:0", *words) as agent:
        agent.wait_announced()
        yield agent


@contextlib.contextmanager
def running_busy_node(*words: str) -> Iterator[AgentProcess]:
    """A simulation in a directory of its own, from when its GPUs have readings and pods hold some of them."""
    with tempfile.TemporaryDirectory(prefix="na-") as directory, running_simulation(Path(directory), *words) as agent:
        agent.wait_for("/api/v1/gpus", "gpu_utilization_percent")
        agent.wait_for("/api/v1/allocations", "namespace")
        yield agent


@contextlib.contextmanager
def running_agent(
    directory: Path,
    *words: str,
    variables: dict[str, str] | None = None,
    descriptors: int | None = None,
    front: Sequence[str] = (),
    module: str = "nodeagent",
) -> Iterator[AgentProcess]:
    """`nodeagent run` with all it writes below `directory`, stopped at the end of the block.

    `descriptors` is how many files it may have open, as a unit's `LimitNOFILE=` says it; `front` is a command in front
    of it, which becomes the agent; `module` is another program that runs an agent.
    """
    settings = {
        "node.state_dir": directory / "state",
        "node.run_dir": directory / "run",
        "kubelet.root_dir": directory / "kubelet",
        "kubelet.device_plugins_dir": directory / "kubelet" / "device-plugins",
        "cdi.dir": directory / "cdi",
        "cdi.hook_dir": directory / "hook",
        "driver.validation_dir": directory / "validations",
        "driver.manage_device_nodes": "false",
        "http.listen": "127.0.0.1:0",
    }
    sets = [word for key, value in settings.items() for word in ("--set", f"{key}={value}")]
    with starting(
        directory, "run", *sets, *words, variables=variables, descriptors=descriptors, front=front, module=module
    ) as agent:
        agent.wait_started()
        yield agent


@contextlib.contextmanager
def starting(
    directory: Path,
    *words: str,
    variables: dict[str, str] | None = None,
    descriptors: int | None = None,
    front: Sequence[str] = (),
    module: str = "nodeagent",
) -> Iterator[AgentProcess]:
    limited = [sys.executable, "-c", LIMITED, str(descriptors)] if descriptors is not None else []
    process = subprocess.Popen(
        [*front, *limited, sys.executable, "-m", module, *words],
        env={**command_environment(directory), **(variables or {})},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    agent = AgentProcess(process, directory)
    try:
        yield agent
    finally:
        agent.stop()
        for stream in (process.stdout, process.stderr):
            if stream is not None:
                stream.close()
