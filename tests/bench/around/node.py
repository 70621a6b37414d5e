"""A node under measurement: a fake driver behind real pynvml, a stand-in kubelet, and an agent, a process each.

Every time taken here is on the monotonic clock, which all processes of a machine share.
"""

import http.client
import json
import os
import shlex
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from types import MappingProxyType
from typing import Any, NamedTuple

from tests.fakes.nvml.control import FakeNvml

POD_PAUSE_SECONDS = 0.003
"""Between pods: what the agent does after an answer is no part of the next, and containers take far longer."""
PATIENCE_SECONDS = 120.0
RESOURCE = "nvidia.com/gpu"
TICKS = os.sysconf("SC_CLK_TCK")
Event = dict[str, Any]


class Admissions(NamedTuple):
    """Milliseconds of pods admitted one after the other."""

    millis: list[float]
    """All that was asked for each."""
    allocate_millis: list[float]
    nothing_millis: list[float]
    """Where starts count: of as many calls that ask for nothing."""


class KubeletProcess:
    """The other side of the device plugin's socket."""

    def __init__(self, directory: Path, caller: str) -> None:
        self.events: list[Event] = []
        self._news = threading.Condition()
        self._process = subprocess.Popen(
            [sys.executable, "-m", "tests.bench.around.kubelet_process", "--dir", str(directory), "--caller", caller],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        self._listener = threading.Thread(target=self._listen, daemon=True)
        self._listener.start()
        self.wait("serving")

    def _listen(self) -> None:
        assert self._process.stdout is not None
        with self._process.stdout as lines:
            for line in lines:
                with self._news:
                    self.events.append(json.loads(line))
                    self._news.notify_all()

    def wait(self, event: str, *, since: float = 0.0, **wanted: Any) -> Event:
        """The first event of a kind after a moment, with these values."""

        def find() -> Event | None:
            fitting = (one for one in self.events if one["event"] == event and one["at"] >= since)
            return next((one for one in fitting if wanted.items() <= one.items()), None)

        with self._news:
            found = self._news.wait_for(find, PATIENCE_SECONDS)
        if found is None:
            raise TimeoutError(f"the kubelet never saw {event} {wanted}; last: {self.events[-3:]}")
        return found

    def admit(
        self,
        size: int,
        rounds: int,
        resource: str = RESOURCE,
        pause_seconds: float = POD_PAUSE_SECONDS,
    ) -> list[float]:
        """Milliseconds of preference and durable allocation, pod by pod."""
        return self.admit_apart(size, rounds, resource, pause_seconds).millis

    def admit_apart(
        self,
        size: int,
        rounds: int,
        resource: str = RESOURCE,
        pause_seconds: float = POD_PAUSE_SECONDS,
        *,
        also: Mapping[str, int] | None = None,
        standing: int = 0,
    ) -> Admissions:
        """The same, and Allocate by itself; with `also` the starts count, and preferences do not."""
        assert self._process.stdin is not None
        began = time.perf_counter()
        request = {"resource": resource, "size": size, "rounds": rounds, "pause_seconds": pause_seconds}
        request |= {"also": dict(also or {}), "standing": standing}
        self._process.stdin.write(json.dumps(request) + "\n")
        self._process.stdin.flush()
        told = self.wait("admitted", since=began)
        return Admissions(told["millis"], told["allocate_millis"], told["nothing_millis"])

    def close(self) -> None:
        assert self._process.stdin is not None
        self._process.stdin.close()
        self._process.wait(PATIENCE_SECONDS)
        self._listener.join()


class PluginProcess:
    """The agent, or any other device plugin: what can be read of it from outside."""

    def __init__(self, command: Sequence[str], environment: dict[str, str], port: int) -> None:
        self.name = " ".join(command)
        self.port = port
        self.began = time.perf_counter()
        self.process = subprocess.Popen(command, env=environment, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)

    def family(self) -> list[int]:
        """The process and its children."""
        pid = self.process.pid
        children = Path(f"/proc/{pid}/task/{pid}/children").read_text().split()
        return [pid, *map(int, children)]

    def cpu_seconds(self) -> float:
        """Processor time of the family so far."""
        fields = [Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split() for pid in self.family()]
        return sum(int(one[11]) + int(one[12]) for one in fields) / TICKS

    def run_seconds(self) -> float:
        """The same of all threads that live now, as exactly as the scheduler knows it."""
        tasks = [task for pid in self.family() for task in Path(f"/proc/{pid}/task").iterdir()]
        return sum(int((task / "schedstat").read_text().split()[0]) for task in tasks) / 1e9

    def memory_mib(self, kind: str) -> float:
        """`Rss` or `Pss` of the family, without the state of the fake driver, which no real node has."""
        return sum(read_memory_kib(pid, kind) for pid in self.family()) / 1024

    def get(self, path: str) -> tuple[int, str]:
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=10)
        try:
            connection.request("GET", path)
            answer = connection.getresponse()
            return answer.status, answer.read().decode()
        finally:
            connection.close()

    def wait_ready(self) -> float:
        """Seconds from exec until `/readyz` said 200."""
        self.wait_until(lambda: self.get("/readyz")[0] == http.HTTPStatus.OK)
        return time.perf_counter() - self.began

    def wait_until(self, is_so: Callable[[], bool]) -> None:
        while time.perf_counter() - self.began < PATIENCE_SECONDS:
            try:
                if is_so():
                    return
            except OSError:
                pass  # not listening yet: asked again
            time.sleep(0.005)
        raise TimeoutError("the agent never came so far")

    def stop(self, sent: signal.Signals = signal.SIGTERM) -> float:
        """Seconds from the signal to the end."""
        began = time.perf_counter()
        self.process.send_signal(sent)
        self.process.wait(PATIENCE_SECONDS)
        return time.perf_counter() - began

    def end(self) -> None:
        if self.process.poll() is None:
            self.process.kill()
            self.process.wait()


class BenchNode:
    """One node; agents come and go on it."""

    def __init__(self, directory: Path, fake: FakeNvml, kubelet: KubeletProcess) -> None:
        self.directory, self.fake, self.kubelet = directory, fake, kubelet

    @contextmanager
    def running_agent(
        self,
        *words: str,
        programs: Path | None = None,
        module: str = "nodeagent",
        environment: Mapping[str, str] = MappingProxyType({}),
    ) -> Iterator[PluginProcess]:
        """`nodeagent run`, ended with the block; `programs` come before those of the machine.

        Another `module` is the agent with a hand on it, by what its `environment` says.
        """
        port = find_free_port()
        path = os.pathsep.join([*([str(programs)] if programs else []), os.environ["PATH"]])
        own = {"PATH": path, "HOME": str(self.directory), "TMPDIR": str(self.directory)}
        command = [sys.executable, "-m", module, "run", *self.list_settings(port)]
        agent = PluginProcess([*command, *words], {**own, **environment}, port)
        try:
            yield agent
        finally:
            agent.end()

    def list_settings(self, port: int) -> list[str]:
        """What ties an agent to this node, as words of its command line."""
        kubelet = self.directory / "kubelet"
        settings = {
            "node.state_dir": self.directory / "state",
            "node.run_dir": self.directory / "run",
            "kubelet.root_dir": kubelet,
            "kubelet.device_plugins_dir": kubelet / "device-plugins",
            "kubelet.pod_resources_socket": kubelet / "pod-resources" / "kubelet.sock",
            "cdi.dir": self.directory / "cdi",
            "cdi.hook_dir": self.directory / "hook",
            "driver.validation_dir": self.directory / "validations",
            "driver.manage_device_nodes": "false",
            "driver.nvml_library": self.fake.library_path,
            "driver.worker_environment": json.dumps(self.fake.environment),
            "kubernetes.enabled": "false",
            # The fake driver has no device nodes, without which a GPU gets no CDI entry and is not offered.
            "device_plugin.device_list_strategy": '["envvar"]',
            "http.listen": f"127.0.0.1:{port}",
        }
        return [word for key, value in settings.items() for word in ("--set", f"{key}={value}")]

    @contextmanager
    def running_plugin(self, command: str) -> Iterator[PluginProcess]:
        """Any other plugin; `{dir}` in its command is where this kubelet's `device-plugins` is."""
        words = shlex.split(command.replace("{dir}", str(self.directory / "kubelet")))
        environment = {**os.environ, **self.fake.environment, "LD_LIBRARY_PATH": str(self.fake.library_directory)}
        plugin = PluginProcess(words, environment, 0)
        try:
            yield plugin
        finally:
            plugin.end()

    def wait_advertised(self, agent: PluginProcess, healthy: int) -> float:
        """Seconds from exec until the kubelet had this many healthy devices."""
        at: float = self.kubelet.wait("list", since=agent.began, healthy=healthy)["at"]
        return at - agent.began


@contextmanager
def bench_node(profile: str = "dgx-h100", kubelet_dir: Path | None = None, caller: str = "go") -> Iterator[BenchNode]:
    """A fresh node, gone with the block; `caller` makes the kubelet's calls that are timed."""
    with ExitStack() as stack:
        directory = Path(tempfile.mkdtemp(prefix="nb-"))
        stack.callback(shutil.rmtree, directory, ignore_errors=True)
        fake = FakeNvml(directory, profile)
        stack.callback(fake.close)
        kubelet = KubeletProcess(kubelet_dir or directory / "kubelet", caller)
        stack.callback(kubelet.close)
        yield BenchNode(directory, fake, kubelet)


def find_free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def read_memory_kib(pid: int, kind: str) -> int:
    """`Rss`, `Pss` or `Anonymous` of one process, without the state of the fake driver, which no real node has."""
    total, is_fake = 0, False
    for line in Path(f"/proc/{pid}/smaps").read_text().splitlines():
        words = line.split()
        if not words[0].endswith(":"):
            is_fake = len(words) > 5 and "nvml-state" in words[5]
        elif words[0] == f"{kind}:" and not is_fake:
            total += int(words[1])
    return total
