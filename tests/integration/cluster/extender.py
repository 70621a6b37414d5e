"""The scheduler's extender beside a real kube-scheduler that asks it, with the rights it is shipped with.

Owns its process, its port and the scheduler's configuration; whoever stops the scheduler starts it here again.
"""

import dataclasses
import os
import signal
import ssl
import subprocess
import urllib.request
from base64 import b64decode
from pathlib import Path
from typing import Any

import yaml

from tests.deploy.helm import CHART, helm_path
from tests.integration.cluster.agent import COMMAND, NAMESPACE
from tests.integration.cluster.api import Json
from tests.integration.cluster.commands import render_scheduler
from tests.integration.cluster.control import RBAC, Cluster
from tests.integration.cluster.errors import ApiUnreachable
from tests.integration.cluster.layout import CHECKOUT, choose_free_ports
from tests.integration.cluster.making.render import render_kubeconfig
from tests.integration.cluster.namespace import join_namespace
from tests.integration.cluster.processes import spawn, wait_until, write_record

RIGHTS = CHECKOUT / "deploy" / "rbac-extender.yaml"
RECORD = "extender"
READY_SECONDS = 30.0
MANAGED = ("tencent.com/vcuda-core", "tencent.com/vcuda-memory")
SECRETS = tuple(f"nodeagent-extender-{name}" for name in ("client", "server", "choices"))
FORCED: Json = {"apiVersion": "v1", "kind": "DeleteOptions", "gracePeriodSeconds": 0}
"""Of a pod that no kubelet knows nobody else says that it has ended."""


def request_extender_token(cluster: Cluster) -> str:
    path = f"/api/v1/namespaces/{NAMESPACE}/serviceaccounts/nodeagent-extender/token"
    return str(cluster.api.post(path, {"spec": {}})["status"]["token"])


@dataclasses.dataclass(slots=True)
class ExtenderUnderTest:
    """One extender; start and stop it as often as the scenario needs."""

    cluster: Cluster
    tls_from: str = ""
    """By what of the chart those who ask, and it, know each other (`extender.tls.from`); nothing without the chart."""
    port: int = dataclasses.field(default_factory=lambda: choose_free_ports(1)[0])
    process: subprocess.Popen[bytes] | None = None

    @property
    def directory(self) -> Path:
        return self.cluster.layout.agent

    @property
    def url(self) -> str:
        return f"http{'s' if self.tls_from else ''}://127.0.0.1:{self.port}"

    def install_chart(self) -> dict[str, dict[str, bytes]]:
        """Have Helm install the chart, with no extender of its own that could run; all Secrets of it."""
        here = ("--namespace", NAMESPACE, "--take-ownership")
        nowhere = ("--set-string", "nodeSelector.nowhere=true,extender.nodeSelector.nowhere=true")
        install = (str(helm_path()), "upgrade", "--install", "nodeagent", str(CHART))
        self.cluster.run(*install, *here, *nowhere, "--set", f"extender.enabled=true,extender.tls.from={self.tls_from}")
        named: dict[str, dict[str, str]] = {}

        def probe() -> str | None:
            found = self.cluster.api.get(f"/api/v1/namespaces/{NAMESPACE}/secrets")["items"]
            named.update({each["metadata"]["name"]: each.get("data", {}) for each in found})
            missing = [name for name in SECRETS if name not in named]
            return f"no Secret {', '.join(missing)}" if missing else None

        # Helm's own Secrets are there at once, those of cert-manager once it has signed.
        wait_until("the extender's Secrets", probe, timeout_seconds=READY_SECONDS)
        return {
            name: {key: b64decode(text) for key, text in data.items()}
            for name, data in named.items()
            if name.startswith("nodeagent-extender")
        }

    def uninstall_chart(self) -> None:
        """The agent's rights, which Helm takes with it, are put back for other scenarios."""
        options = ("--namespace", NAMESPACE, "--ignore-not-found", "--wait")
        self.cluster.run(str(helm_path()), "uninstall", "nodeagent", *options)
        self.cluster.run("kubectl", "apply", "-f", str(RBAC))

    def tls_file(self, name: str) -> str:
        """Of the extender, or of who asks it."""
        return str(self.directory / "extender-tls" / name)

    def start(self) -> None:
        """With a token of its own account; returns at once."""
        layout = self.cluster.layout
        token = request_extender_token(self.cluster)
        kubeconfig = self.directory / "extender.kubeconfig"
        kubeconfig.write_text(render_kubeconfig(layout, self.cluster.state.ports, token))
        settings = {
            "kubernetes.kubeconfig": str(kubeconfig),
            "kubernetes.namespace": NAMESPACE,
            "extender.listen": f"127.0.0.1:{self.port}",
            "extender.assume_seconds": "20",
        }
        if self.tls_from:
            settings["extender.web_config_file"] = self._write_tls()
            settings["extender.choice_keys_file"] = self.tls_file("choices-keys")
        words = [word for key, value in settings.items() for word in ("--set", f"{key}={value}")]
        environment = {key: os.environ[key] for key in ("PATH", "LANG", "TMPDIR") if key in os.environ}
        with layout.log(RECORD).open("ab") as output:
            self.process = subprocess.Popen(
                (COMMAND[0], "extender", *words),
                env=environment,
                cwd=self.directory,
                stdout=output,
                stderr=output,
                start_new_session=True,
            )
        write_record(self.process.pid, layout.records / RECORD)

    def write_secrets(self, secrets: dict[str, dict[str, bytes]]) -> Path:
        """The files that pods would have mounted, each called after its Secret; the folder of all."""
        folder = self.directory / "extender-tls"
        folder.mkdir(exist_ok=True)
        for name, data in secrets.items():
            for key, content in data.items():
                (folder / f"{name.removeprefix('nodeagent-extender-')}-{key}").write_bytes(content)
        return folder

    def _write_tls(self) -> str:
        folder = self.write_secrets(self.install_chart())
        served = {"cert_file": self.tls_file("server-tls.crt"), "key_file": self.tls_file("server-tls.key")}
        asking = {"client_auth_type": "RequireAndVerifyClientCert", "client_ca_file": self.tls_file("server-ca.crt")}
        file = folder / "web.yaml"
        file.write_text(yaml.safe_dump({"tls_server_config": served | asking}))
        return str(file)

    def open(self, path: str, *, with_certificate: bool = True) -> int:
        """The status that whoever asks is answered with."""
        context = None
        if self.tls_from:
            context = ssl.create_default_context(cafile=self.tls_file("client-ca.crt"))
            context.check_hostname = False  # the certificate has the Service's name
            if with_certificate:
                context.load_cert_chain(self.tls_file("client-tls.crt"), self.tls_file("client-tls.key"))
        with urllib.request.urlopen(f"{self.url}{path}", timeout=5, context=context) as answer:
            return int(answer.status)

    def stop(self, number: signal.Signals = signal.SIGTERM) -> None:
        assert self.process is not None, "start it first"
        self.process.send_signal(number)
        self.process.wait(25)

    def wait_ready(self) -> None:
        def probe() -> str | None:
            try:
                self.open("/readyz")
            except OSError as error:
                return f"{error}"
            return None

        wait_until("the extender to be ready", probe, timeout_seconds=READY_SECONDS)

    def restart_scheduler(self) -> None:
        """The real kube-scheduler, told of the extender."""
        layout = self.cluster.layout
        told: dict[str, Any] = {
            "filterVerb": "predicates",
            "nodeCacheCapable": True,
            "httpTimeout": "10s",
            "managedResources": [{"name": name, "ignoredByScheduler": False} for name in MANAGED],
        }
        if self.tls_from:
            (told,) = yaml.safe_load(self._read_entry())
        configuration: dict[str, Any] = {
            "apiVersion": "kubescheduler.config.k8s.io/v1",
            "kind": "KubeSchedulerConfiguration",
            "clientConnection": {"kubeconfig": str(layout.kubeconfig("scheduler"))},
            "leaderElection": {"leaderElect": False},
            "extenders": [told | {"urlPrefix": f"{self.url}/scheduler"}],
        }
        file = self.directory / "scheduler.yaml"
        file.write_text(yaml.safe_dump(configuration))
        self.cluster.stop("scheduler", signal.SIGKILL)
        program, *_ = render_scheduler(layout, self.cluster.state.ports)
        command = join_namespace(layout, (program, f"--config={file}", "--secure-port=0"))
        spawn(command, layout.log("scheduler"), layout.records / "scheduler", self.cluster.environment)

    def _read_entry(self) -> str:
        """The entry for kube-scheduler, from where the chart's notes say that it is."""
        if self.tls_from == "chart":
            return Path(self.tls_file("client-scheduler-extender.yaml")).read_text()
        path = f"/api/v1/namespaces/{NAMESPACE}/configmaps/nodeagent-extender"
        entry: str = self.cluster.api.get(path)["data"]["scheduler-extender.yaml"]
        return entry.replace("/etc/nodeagent-tls/", self.tls_file("client-"))

    def close(self) -> None:
        """Everything as it was: no extender, and the scheduler that every other scenario has."""
        if self.process is not None and self.process.poll() is None:
            self.stop(signal.SIGKILL)
        self.cluster.stop("scheduler", signal.SIGKILL)
        self.cluster.start("scheduler")
        if self.tls_from:
            self.uninstall_chart()


def create_node(cluster: Cluster, name: str, annotations: dict[str, str], capacity: dict[str, str]) -> None:
    """A node that exists in the API only: no kubelet ever answers for it, and pods there stay as they are bound."""
    plain = {"cpu": "64", "memory": "256Gi", "pods": "500"}
    metadata = {"name": name, "annotations": annotations, "labels": {"kubernetes.io/hostname": name}}
    cluster.api.post("/api/v1/nodes", {"apiVersion": "v1", "kind": "Node", "metadata": metadata})
    status = {"capacity": plain | capacity, "allocatable": plain | capacity}
    cluster.api.patch(f"/api/v1/nodes/{name}/status", {"status": status})


def drop_everything(cluster: Cluster, nodes: tuple[str, ...]) -> None:
    """Pods of nodes without a kubelet, and those nodes."""

    def probe() -> str | None:
        try:
            left = cluster.api.get("/api/v1/namespaces/default/pods")["items"]
            for pod in left:
                cluster.api.delete(f"/api/v1/namespaces/default/pods/{pod['metadata']['name']}", FORCED)
        except ApiUnreachable as error:
            return str(error)
        return f"{len(left)} pods" if left else None

    wait_until("all pods to be gone", probe, timeout_seconds=READY_SECONDS)
    for name in nodes:
        cluster.api.delete(f"/api/v1/nodes/{name}")
