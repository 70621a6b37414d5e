"""The agent as clusters get it: our image, our chart, installed by Helm on the real API server.

Owns the release and its pods; what the chart says is what runs, but for the values a reader of the guide would set.
"""

import json
import shutil
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import yaml

from tests.deploy.dist import build as build_distribution
from tests.deploy.helm import CHART, helm_path
from tests.integration.cluster.api import Json
from tests.integration.cluster.control import RBAC, Cluster
from tests.integration.cluster.errors import CommandFailed
from tests.integration.cluster.processes import wait_until
from tests.integration.machine.image import make_image, write_archive

NAMESPACE: Final = "nodeagent"
REPOSITORY: Final = "localhost/nodeagent"
READY_SECONDS: Final = 60.0
PODS: Final = f"/api/v1/namespaces/{NAMESPACE}/pods"
EPOCH: Final = "1700000000"


@dataclass(frozen=True, slots=True)
class Deployment:
    """The release of this test."""

    cluster: Cluster
    tag: str

    @property
    def chart(self) -> Path:
        return CHART

    def helm(self, *words: str) -> str:
        return self.cluster.run(str(helm_path()), *words, "--namespace", NAMESPACE)

    def kubectl(self, *words: str) -> str:
        """One call of kubectl in our name space, which must succeed."""
        return self.cluster.run("kubectl", "--namespace", NAMESPACE, *words)

    def install(self, config: Mapping[str, Any] | None = None, *words: str) -> None:
        """As the guide says, with an image that no registry has."""
        values = self.cluster.layout.agent / "values.yaml"
        image = {"repository": REPOSITORY, "tag": self.tag, "pullPolicy": "Never"}
        values.write_text(yaml.safe_dump({"image": image, "config": dict(config or {})}))
        # The cluster has our rights already, for agents outside of pods; the release takes them over.
        self.helm("upgrade", "--install", "nodeagent", str(CHART), "--take-ownership", "-f", str(values), *words)

    def list_pods(self) -> list[Json]:
        """The agent's pods, those that are going included."""
        found: list[Json] = self.cluster.api.get(PODS, labelSelector="app.kubernetes.io/name=nodeagent")["items"]
        return found

    def wait_ready(self, *, other_than: str = "") -> Json:
        """Wait for the one pod to be ready; return it. Told of the uid before, wait for another pod that is at work."""
        found: list[Json] = []

        def probe() -> str | None:
            found[:] = self.list_pods()
            fit = len(found) == 1 and found[0]["metadata"]["uid"] != other_than and is_ready(found[0])
            return None if fit and (not other_than or self._is_registered(found[0])) else self.describe()

        wait_until("the agent's pod to be ready", probe, timeout_seconds=READY_SECONDS)
        return found[0]

    def _is_registered(self, pod: Json) -> bool:
        """Whether the pod's agent has registered a resource: a standby is ready long before."""
        return "resource_registered" in self.kubectl("logs", pod["metadata"]["name"], "--container", "nodeagent")

    def describe(self) -> str:
        """Why a pod is not ready, in the kubelet's words and its own."""
        words = [json.dumps(pod["status"]) for pod in self.list_pods()]
        events = self.cluster.api.get(f"/api/v1/namespaces/{NAMESPACE}/events")["items"]
        words += [f"{each['reason']}: {each['message']}" for each in events[-8:]]
        try:
            words.append(self.kubectl("logs", "daemonset/nodeagent", "--tail=20"))
        except CommandFailed as error:
            words.append(str(error))
        return "\n".join(words)

    def exec(self, *command: str) -> str:
        """Run something in the agent's container."""
        return self.kubectl("exec", "daemonset/nodeagent", "--", *command)


def find_state(cluster: Cluster) -> Path:
    """What the node sees as /var/lib/nodeagent."""
    return cluster.layout.root / "lib" / "nodeagent"


def is_ready(pod: Json) -> bool:
    """Whether its readiness probe has passed."""
    return any(each["type"] == "Ready" and each["status"] == "True" for each in pod["status"].get("conditions", ()))


def import_image(cluster: Cluster, directory: Path) -> str:
    """Build our image from this checkout and hand it to containerd; return its tag."""
    wheel = directory / "dist"
    wheel.mkdir()
    build_distribution(wheel, EPOCH)
    image = make_image(wheel)
    reference = f"{REPOSITORY}:{image.key}"
    if not cluster.images("list", "--quiet", f"name=={reference}").strip():
        archive = directory / "image.tar"
        write_archive(image, reference, archive)
        cluster.images("import", "--local", str(archive))
        archive.unlink()
    return image.key


@contextmanager
def deployed(cluster: Cluster, tag: str) -> Iterator[Deployment]:
    """A cluster in which nothing of ours runs, and whose node no label says to have GPUs; as it was afterwards."""
    try:
        yield Deployment(cluster, tag)
    finally:
        cluster.run(
            str(helm_path()), "uninstall", "nodeagent", "--namespace", NAMESPACE, "--ignore-not-found", "--wait"
        )
        wait_until(
            "the agent's pods to be gone",
            lambda: str(len(found)) if (found := cluster.api.get(PODS)["items"]) else None,
            timeout_seconds=READY_SECONDS,
        )
        cluster.run("kubectl", "apply", "-f", str(RBAC))
        shutil.rmtree(find_state(cluster), ignore_errors=True)
