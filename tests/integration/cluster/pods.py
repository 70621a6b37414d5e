"""Pods for the scenarios: create, wait, exec, logs, delete; a wait that fails says what the kubelet said.

Every pod uses the host's network and the one local image, tolerates everything, and dies at once when deleted.
"""

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from tests.integration.cluster.api import Json
from tests.integration.cluster.control import Cluster
from tests.integration.cluster.errors import ApiUnreachable, WaitTimedOut
from tests.integration.cluster.making.render import BUSYBOX_IMAGE
from tests.integration.cluster.processes import wait_until

WAIT = "trap 'exit 0' TERM; sleep 2147483647 & wait"  # in a shell: a container's first process dies only if it traps
FOREVER = ("sh", "-c", WAIT)
WAIT_SECONDS = 60.0
PATH = "/api/v1/namespaces/default/pods"


def render_pod(
    name: str,
    command: Sequence[str] = FOREVER,
    *,
    limits: Mapping[str, int | str] | None = None,
    environment: Mapping[str, str] | None = None,
    annotations: Mapping[str, str] | None = None,
    spec: Mapping[str, Any] | None = None,
) -> Json:
    """The manifest of a one-container pod; `limits` is where GPUs are asked for, `spec` adds whatever else."""
    container = {
        "name": "main",
        "image": BUSYBOX_IMAGE,
        "imagePullPolicy": "Never",
        "command": list(command),
        "env": [{"name": key, "value": value} for key, value in (environment or {}).items()],
        "resources": {"limits": {key: str(value) for key, value in (limits or {}).items()}},
    }
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": name, "annotations": dict(annotations or {})},
        "spec": {
            "hostNetwork": True,
            "restartPolicy": "Never",
            "automountServiceAccountToken": False,
            "enableServiceLinks": False,
            # Not 0: the API server would forget the pod at once, while its container still runs.
            "terminationGracePeriodSeconds": 1,
            "tolerations": [{"operator": "Exists"}],
            "containers": [container],
            **(spec or {}),
        },
    }


class Pods:
    """The pods of one cluster, in its default namespace."""

    def __init__(self, cluster: Cluster) -> None:
        self._cluster = cluster

    def create(self, pod: Json) -> str:
        """Hand a manifest to the API server; return the pod's name at once."""
        return str(self._cluster.api.post(PATH, pod)["metadata"]["name"])

    def run(self, pod: Json) -> str:
        """Create a pod and wait until its container runs."""
        name = self.create(pod)
        self.wait(name, "Running")
        return name

    def read(self, name: str) -> Json:
        return self._cluster.api.get(f"{PATH}/{name}")

    def names(self) -> tuple[str, ...]:
        return tuple(each["metadata"]["name"] for each in self._cluster.api.get(PATH)["items"])

    def wait(self, name: str, phase: str, *, timeout_seconds: float = WAIT_SECONDS) -> Json:
        """Wait until the pod is in this phase (and, if Running, its container too); return the pod.

        Raises:
            WaitTimedOut: with the pod's status and its events.
        """
        return self.wait_for(name, phase, lambda pod: has_reached(pod, phase), timeout_seconds=timeout_seconds)

    def wait_for(
        self, name: str, what: str, holds: Callable[[Json], bool], *, timeout_seconds: float = WAIT_SECONDS
    ) -> Json:
        """Wait until `holds` is true of the pod; an API server that is away meanwhile only costs time.

        So does a pod that is not there yet: a static one comes to the API server after it has begun.
        """
        pod: Json = {}

        def probe() -> str | None:
            nonlocal pod
            try:
                found = self._cluster.api.find(f"{PATH}/{name}")
            except ApiUnreachable as error:
                return str(error)
            if found is None:
                return "no such pod"
            pod = found
            return None if holds(pod) else str(pod["status"])

        try:
            wait_until(f"pod {name} to be {what}", probe, timeout_seconds=timeout_seconds)
        except WaitTimedOut as error:
            seen = f"{error.last_seen}; events: {'; '.join(self.read_events(name)) or 'none'}"
            raise WaitTimedOut(error.what, timeout_seconds, seen) from error
        return pod

    def container_id(self, name: str) -> str:
        """The id of the pod's container as containerd knows it."""
        return str(self.read(name)["status"]["containerStatuses"][0]["containerID"]).removeprefix("containerd://")

    def exec(self, name: str, *command: str) -> str:
        """Run a command in the pod's container; return what it printed."""
        return self._cluster.run("kubectl", "exec", name, "--", *command)

    def logs(self, name: str) -> str:
        return self._cluster.run("kubectl", "logs", name)

    def read_events(self, name: str) -> tuple[str, ...]:
        """What the scheduler and the kubelet said about the pod, oldest first."""
        events = self._cluster.api.get("/api/v1/namespaces/default/events", fieldSelector=f"involvedObject.name={name}")
        return tuple(f"{each['reason']}: {each['message']}" for each in events["items"])

    def delete(self, *names: str) -> None:
        """Delete pods and wait until the kubelet has ended their containers and let them go."""
        for name in names:
            self._cluster.api.delete(f"{PATH}/{name}")
        wait_until(
            f"pods {', '.join(names)} to be gone",
            lambda: f"still there: {', '.join(left)}" if (left := sorted({*names} & {*self.names()})) else None,
            timeout_seconds=WAIT_SECONDS,
        )

    def delete_all(self) -> None:
        self.delete(*self.names())


def has_reached(pod: Json, phase: str) -> bool:
    """Whether the pod is in this phase; a running one also needs a running container."""
    if pod["status"].get("phase") != phase:
        return False
    states = [each["state"] for each in pod["status"].get("containerStatuses", [])]
    return phase != "Running" or (bool(states) and all("running" in state for state in states))
