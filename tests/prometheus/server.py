"""A Prometheus of our own on loopback, and the agent it scrapes."""

import json
import os
import shutil
import subprocess
import sys
import tempfile
import time
import urllib.parse
import urllib.request
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

import yaml

from tests.bench.around.node import find_free_port
from tests.unit.deploy.queries import RULES_FILE

T = TypeVar("T")
PATIENCE_SECONDS = 60.0
SCRAPE_SECONDS = 1
STALE_SECONDS = 5
PATIENCE_OF_RULES = "2s"


@dataclass(frozen=True)
class Scene:
    """An agent and a Prometheus that scrapes it each second."""

    agent: str
    prometheus: str
    environment: dict[str, str]

    def query(self, expression: str) -> list[dict[str, Any]]:
        words = urllib.parse.urlencode({"query": expression})
        return list(self._get(f"{self.prometheus}/api/v1/query?{words}")["data"]["result"])

    def query_range(self, expression: str, began: float, ended: float) -> list[dict[str, Any]]:
        """The answer at each second between two moments, Unix time."""
        span = {"start": f"{began:.3f}", "end": f"{ended:.3f}", "step": f"{SCRAPE_SECONDS}s"}
        words = urllib.parse.urlencode({"query": expression, **span})
        return list(self._get(f"{self.prometheus}/api/v1/query_range?{words}")["data"]["result"])

    def list_holders(self) -> frozenset[str]:
        """The pods that hold a GPU, as the agent tells it."""
        rows = self._get(f"{self.agent}/api/v1/allocations")
        return frozenset(row["pod"]["name"] for row in rows if row.get("pod"))

    def rules(self) -> list[dict[str, Any]]:
        """All rules as Prometheus evaluated them."""
        groups = self._get(f"{self.prometheus}/api/v1/rules")["data"]["groups"]
        return [rule for group in groups for rule in group["rules"]]

    def exposition(self) -> str:
        """What the agent serves."""
        with urllib.request.urlopen(f"{self.agent}/metrics", timeout=5) as answer:
            return str(answer.read().decode())

    def break_it(self, *words: str) -> None:
        command = [sys.executable, "-m", "nodeagent", "simulate", "fault", *words]
        subprocess.run(command, env=self.environment, check=True, capture_output=True, timeout=30)

    def wait(self, look: Callable[[], T], what: str) -> T:
        """The first answer that is not empty."""
        end = time.monotonic() + PATIENCE_SECONDS
        while time.monotonic() < end:
            try:
                found = look()
            except OSError:
                found = None
            if found:
                return found
            time.sleep(0.5)
        raise TimeoutError(f"waited {PATIENCE_SECONDS:.0f} s for {what}")

    def _get(self, url: str) -> Any:
        with urllib.request.urlopen(url, timeout=10) as answer:
            return json.loads(answer.read())


@contextmanager
def running_scene(profile: str) -> Iterator[Scene]:
    """Both processes, ended with the block."""
    # A short name: the node's unix sockets lie under it, and their paths may have 107 bytes.
    with tempfile.TemporaryDirectory(prefix="np-", ignore_cleanup_errors=True) as directory:
        yield from _run_scene(Path(directory), profile)


def _run_scene(directory: Path, profile: str) -> Iterator[Scene]:
    program = shutil.which("prometheus")
    assert program is not None, "prometheus is missing: apt-get install prometheus"
    agent_port, port = find_free_port(), find_free_port()
    environment = {"PATH": os.environ["PATH"], "TMPDIR": str(directory), "HOME": str(directory)}
    agent = [sys.executable, "-m", "nodeagent", "simulate", "--profile", profile]
    settings = [f"http.listen=127.0.0.1:{agent_port}", f"metrics.stale_after_seconds={STALE_SECONDS}"]
    job = {"job_name": "nodeagent", "honor_labels": True, "static_configs": [{"targets": [f"127.0.0.1:{agent_port}"]}]}
    interval = f"{SCRAPE_SECONDS}s"
    configuration = {
        "global": {"scrape_interval": interval, "evaluation_interval": interval},
        "rule_files": [str(_hasten_rules(directory))],
        "scrape_configs": [job],
    }
    file = directory / "prometheus.yml"
    file.write_text(json.dumps(configuration))
    prometheus = [
        program,
        f"--config.file={file}",
        f"--storage.tsdb.path={directory / 'data'}",
        f"--web.listen-address=127.0.0.1:{port}",
        "--log.level=warn",
    ]
    processes = [
        subprocess.Popen(command, env=environment, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        for command in ([*agent, *(word for one in settings for word in ("--set", one))], prometheus)
    ]
    try:
        yield Scene(f"http://127.0.0.1:{agent_port}", f"http://127.0.0.1:{port}", environment)
    finally:
        for process in processes:
            process.terminate()
        for process in processes:
            process.wait(30)


def _hasten_rules(directory: Path) -> Path:
    """The shipped rules with their patience cut to seconds, so that alerts fire while somebody looks."""
    document = yaml.safe_load(RULES_FILE.read_text())
    for group in document["groups"]:
        for rule in group["rules"]:
            if "for" in rule:
                rule["for"] = PATIENCE_OF_RULES
    file = directory / "rules.yaml"
    file.write_text(yaml.safe_dump(document))
    return file
