"""The whole agent on a simulated DGX H100: start, memory, stop, loop lag, scrape."""

import http.client
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from tests.bench.rows import Row

PROFILE = "dgx-h100"
SETTLE_SECONDS = 10.0
SCRAPES = 2000
PATIENCE_SECONDS = 60.0


class Node:
    """One agent under measurement."""

    def __init__(self, process: subprocess.Popen[bytes], port: int, began: float) -> None:
        self.process, self.port, self.began = process, port, began
        self.connection = http.client.HTTPConnection("127.0.0.1", port, timeout=10)

    def get(self, path: str) -> tuple[int, str]:
        self.connection.request("GET", path)
        answer = self.connection.getresponse()
        return answer.status, answer.read().decode()

    def wait_ready(self) -> float:
        """Seconds from exec until `/readyz` said 200."""
        while time.perf_counter() - self.began < PATIENCE_SECONDS:
            try:
                if self.get("/readyz")[0] == 200:
                    return time.perf_counter() - self.began
            except OSError:
                self.connection.close()
            time.sleep(0.002)
        raise TimeoutError("the agent never became ready")

    def resident_mib(self) -> float:
        status = Path(f"/proc/{self.process.pid}/status").read_text()
        return int(status.split("VmRSS:")[1].split()[0]) / 1024

    def stop(self) -> float:
        """Seconds from SIGTERM to the end."""
        self.connection.close()
        began = time.perf_counter()
        self.process.send_signal(signal.SIGTERM)
        self.process.wait(PATIENCE_SECONDS)
        return time.perf_counter() - began


def free_port() -> int:
    """A port that nobody listens on now."""
    import socket  # noqa: PLC0415 - for this one look

    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


@contextmanager
def running_node(*words: str) -> Iterator[Node]:
    """A simulation, ended with the block."""
    directory = tempfile.mkdtemp(prefix="nb-")
    port = free_port()
    environment = {"PATH": os.environ["PATH"], "TMPDIR": directory, "HOME": directory}
    command = [sys.executable, "-m", "nodeagent", "simulate", "--profile", PROFILE]
    began = time.perf_counter()
    process = subprocess.Popen(
        [*command, "--set", f"http.listen=127.0.0.1:{port}", *words],
        env=environment,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )
    try:
        yield Node(process, port, began)
    finally:
        if process.poll() is None:
            process.kill()
            process.wait()
        shutil.rmtree(directory, ignore_errors=True)


def measure_life(rounds: int) -> list[Row]:
    """Start and stop, again and again."""
    ready, memory, stop = [], [], []
    for _ in range(rounds):
        with running_node() as node:
            ready.append(node.wait_ready() * 1000)
            time.sleep(2)
            memory.append(node.resident_mib())
            stop.append(node.stop() * 1000)
    return [
        Row("exec to /readyz 200, 8 GPUs", "ms", ready, limit=1000),
        Row("resident memory 2 s after that", "MiB", memory, limit=60),
        Row("SIGTERM to exit", "ms", stop, limit=3000, limit_is_for=0.99),
    ]


def measure_work() -> list[Row]:
    """Loop lag and scrapes of one agent at work."""
    with running_node() as node:
        node.wait_ready()
        time.sleep(SETTLE_SECONDS)
        text = node.get("/metrics")[1]
        lag = float(text.split('nodeagent_loop_lag_seconds{quantile="0.99"} ')[1].split()[0])
        scrapes = []
        for _ in range(SCRAPES):
            began = time.perf_counter()
            node.get("/metrics")
            scrapes.append((time.perf_counter() - began) * 1000)
        return [
            Row("event loop lag, p99 over the last minute", "ms", [lag * 1000], limit=5),
            Row("GET /metrics, keep-alive", "ms", scrapes),
        ]
