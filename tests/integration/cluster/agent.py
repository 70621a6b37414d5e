"""The agent under test: the checkout's own command beside the real kubelet, with simulated GPUs and the shipped rights.

Owns its configuration file, its port and its process. `down` ends it too when a killed test run left it.
"""

import dataclasses
import http.client
import json
import os
import signal
import subprocess
import urllib.error
import urllib.request
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import yaml

from tests.integration.cluster.control import Cluster
from tests.integration.cluster.errors import ProcessDied
from tests.integration.cluster.layout import CHECKOUT, NODE_NAME, Layout, choose_free_ports
from tests.integration.cluster.making.render import render_kubeconfig
from tests.integration.cluster.namespace import join_namespace
from tests.integration.cluster.processes import wait_until, write_record

COMMAND = (str(CHECKOUT / ".venv" / "bin" / "nodeagent"), "run")
NAMESPACE = SERVICE_ACCOUNT = "nodeagent"
RECORD = "agent"
READY_SECONDS = 60.0
STOP_SECONDS = 25.0  # the agent itself exits hard after 18

Settings = Mapping[str, Mapping[str, Any]]


def render_settings(layout: Layout, port: int, gpus: str, extra: Settings | None = None) -> str:
    """The agent's configuration file: every path is one of this cluster's, and `extra` has the last word."""
    home = layout.agent
    settings: dict[str, dict[str, Any]] = {
        "node": {"name": NODE_NAME, "state_dir": str(home / "state"), "run_dir": str(home / "run")},
        "gpus": {"source": gpus},
        "http": {"listen": f"127.0.0.1:{port}"},
        "kubernetes": {"enabled": "true", "kubeconfig": str(layout.kubeconfig("agent"))},
        "kubelet": {
            "root_dir": str(layout.kubelet),
            "device_plugins_dir": str(layout.device_plugins),
            "pod_resources_socket": str(layout.pod_resources_socket),
            "pods_api_socket": str(layout.pods_api_socket),
        },
        "cdi": {"dir": str(layout.cdi_dirs[1])},
        # Another containerd of this machine knows no container of these pods: all would seem to have ended.
        "runtime": {"socket": str(layout.containerd_socket)},
    }
    for section, values in (extra or {}).items():
        settings[section] = {**settings.get(section, {}), **values}
    return yaml.safe_dump(settings, sort_keys=False)


def request_token(cluster: Cluster) -> str:
    """A token of the agent's service account, bound to this node as a pod's token is."""
    uid = cluster.api.read_node()["metadata"]["uid"]
    answer = cluster.api.post(
        f"/api/v1/namespaces/{NAMESPACE}/serviceaccounts/{SERVICE_ACCOUNT}/token",
        {"spec": {"boundObjectRef": {"apiVersion": "v1", "kind": "Node", "name": NODE_NAME, "uid": uid}}},
    )
    return str(answer["status"]["token"])


@dataclasses.dataclass(slots=True)
class AgentUnderTest:
    """One agent; start and stop it as often as the scenario needs. Its state directory stays between the two."""

    cluster: Cluster
    gpus: str = "simulated:t4"
    settings: Settings = dataclasses.field(default_factory=dict)
    command: Sequence[str] = COMMAND
    port: int = dataclasses.field(default_factory=lambda: choose_free_ports(1)[0])
    api_port: int | None = None
    """Where it reaches the API server; None for the server's own port."""
    token: str | None = None
    """Asked for when it starts, unless the scenario has one."""
    process: subprocess.Popen[bytes] | None = None
    log_begins: int | None = None
    """Where its part of the log begins; what is before is another scenario's."""

    @property
    def config_file(self) -> Path:
        return self.cluster.layout.agent / "config.yaml"

    @property
    def log(self) -> Path:
        return self.cluster.layout.log(RECORD)

    def start(self, *arguments: str) -> None:
        """Write its configuration and its credentials, and start it; return at once."""
        layout = self.cluster.layout
        self.write_credentials(self.token or request_token(self.cluster))
        self.write_settings()
        # In the cluster's namespace: of the CDI specifications that the machine may have it must know nothing.
        command = join_namespace(layout, (*self.command, "--config", str(self.config_file), *arguments))
        environment = {key: os.environ[key] for key in ("PATH", "LANG", "TMPDIR") if key in os.environ}
        with self.log.open("ab") as output:
            if self.log_begins is None:
                self.log_begins = output.tell()
            self.process = subprocess.Popen(
                command, env=environment, cwd=layout.agent, stdout=output, stderr=output, start_new_session=True
            )
        write_record(self.process.pid, layout.records / RECORD)

    def write_settings(self) -> None:
        """Put its present settings where it reads them, also for a reload."""
        self.config_file.write_text(render_settings(self.cluster.layout, self.port, self.gpus, self.settings))

    def write_credentials(self, token: str) -> None:
        """Put this token where it reads its own, also while it runs."""
        layout, ports = self.cluster.layout, self.cluster.state.ports
        reached = ports if self.api_port is None else dataclasses.replace(ports, api=self.api_port)
        layout.kubeconfig("agent").write_text(render_kubeconfig(layout, reached, token))

    def stop(self, number: signal.Signals = signal.SIGTERM) -> int:
        """Signal it, and return its exit status; -9 when it had to be killed."""
        assert self.process is not None, "start it first"
        self.process.send_signal(number)
        try:
            return self.process.wait(STOP_SECONDS)
        except subprocess.TimeoutExpired:
            self.process.kill()
            return self.process.wait()

    def is_running(self) -> bool:
        return self.process is not None and self.process.poll() is None

    def restart(self) -> None:
        """Kill it, and wait until its next life is ready."""
        self.stop(signal.SIGKILL)
        self.start()
        self.wait_ready()

    def wait_ready(self, timeout_seconds: float = READY_SECONDS) -> None:
        """Wait until /readyz says 200.

        Raises:
            ProcessDied: it ended instead.
        """

        def probe() -> str | None:
            if not self.is_running():
                raise ProcessDied(RECORD, self.log, self.read_log())
            status, text = self.get("/readyz")
            return None if status == http.client.OK else f"{status} {text}"

        wait_until("the agent to be ready", probe, timeout_seconds=timeout_seconds)

    def get(self, path: str) -> tuple[int, str]:
        """One request to its web port: status and text; status 0 when nobody answers."""
        try:
            with urllib.request.urlopen(f"http://127.0.0.1:{self.port}{path}", timeout=5) as response:
                return response.status, response.read().decode()
        except urllib.error.HTTPError as error:
            with error:
                return error.code, error.read().decode()
        except OSError as error:
            return 0, str(error)

    def break_it(self, *fault: str) -> None:
        """Have its simulated GPUs misbehave."""
        self.run("simulate", "fault", *fault)

    def run(self, *words: str) -> str:
        """One of the agent's own commands, told to the running agent."""
        command = (self.command[0], *words, "--config", str(self.config_file))
        done = subprocess.run(command, check=False, capture_output=True, text=True, timeout=30)
        assert done.returncode == 0, done.stderr
        return done.stdout

    def get_json(self, path: str) -> Any:
        status, text = self.get(path)
        assert status == http.client.OK, f"{path} answered {status} {text}"
        return json.loads(text)

    def read_log(self, lines: int = 20) -> str:
        said = self.log.read_bytes()[self.log_begins or 0 :]
        return "\n".join(said.decode(errors="replace").splitlines()[-lines:])
