"""The agent's own pod: the owner of objects that the agent creates, and the image of a pod that validates the node.

Owns the look-up, and the form of the validating pod, which the admission policy in deploy/rbac-validation.yaml demands.
An object with these owners outlives a replaced pod, for the cluster collects the object only when all owners are gone,
and goes with the DaemonSet. Refuses to guess: outside of a pod, in a pod of no DaemonSet, and where the pod cannot be
read, there are no owners, and the object stays.
"""

import hashlib
from collections.abc import AsyncGenerator
from contextlib import aclosing
from random import Random
from typing import Final

from nodeagent.core.log.lines import get_logger
from nodeagent.edge.kube.client import Json, KubeClient
from nodeagent.edge.kube.errors import ApiForbidden, ApiNotFound, ApiRefused, KubeError, making_sense
from nodeagent.edge.kube.follow import SILENCE_SECONDS, Follower, follow_all
from nodeagent.model.cluster import ValidationPod

VALIDATION_NAME: Final = "nodeagent-validation"
_CONTAINER: Final = "nodeagent"
"""The container of the agent's own pod, whose image the validation runs."""
_KEPT: Final = ("imagePullSecrets", "runtimeClassName")
"""What both pods need: access to the image, and the way by which containers of this node get GPUs."""

_log = get_logger(component="kube")


class PodOwners:
    """The owners of objects in our own namespace, asked for until known."""

    def __init__(self, client: KubeClient, pod_name: str | None) -> None:
        self._client, self._pod_name = client, pod_name
        self._known: list[Json] | None = None
        self._told = False

    async def read(self, namespace: str) -> list[Json]:
        """The owners for an object in the namespace; empty in a namespace without the agent's pod."""
        if self._pod_name is None:
            return []
        if self._known is None:
            path = f"/api/v1/namespaces/{namespace}/pods/{self._pod_name}"
            try:
                pod = await self._client.request("GET", path, attempted=f"read our pod {self._pod_name}")
            except ApiRefused as error:
                self._note(error)
                return []
            self._known = parse_owners(pod)
        return self._known

    def _note(self, error: KubeError) -> None:
        if not self._told:
            self._told = True
            _log.warning("owners_not_found", pod=self._pod_name, reason=str(error))


def parse_owners(pod: Json) -> list[Json]:
    """The DaemonSet of a pod and the pod, as owner references; empty for a pod of no DaemonSet."""
    metadata = pod.get("metadata") or {}
    daemon_set = next((each for each in metadata.get("ownerReferences") or () if each.get("kind") == "DaemonSet"), None)
    if daemon_set is None or not metadata.get("uid"):
        return []
    kept = {key: daemon_set.get(key, "") for key in ("apiVersion", "kind", "name", "uid")}
    itself = {"apiVersion": "v1", "kind": "Pod", "name": metadata.get("name", ""), "uid": metadata["uid"]}
    return [kept | {"controller": True}, itself]


class OwnPodUnknown(KubeError):
    """There is no pod of the agent's own, whose image could be run."""

    def __init__(self) -> None:
        super().__init__(
            "cannot make a pod that validates this node: the agent does not know its own pod, whose image it runs;"
            " set kubernetes.pod_name (POD_NAME), or driver.workload_validation to false"
        )


class ValidationForbidden(ApiForbidden):
    """The rights for the pod are missing, or the policy has no such pod."""

    remedy = "apply deploy/rbac-validation.yaml with the agent's image in it, and run the agent as a pod"


class KubeValidationPod:
    """Makes, follows and removes the pod."""

    def __init__(
        self,
        client: KubeClient,
        node_name: str,
        own: tuple[str | None, str | None],
        rng: Random,
        *,
        silence_seconds: float = SILENCE_SECONDS,
    ) -> None:
        """`own` has the namespace of the agent's objects and the name of the agent's pod, where known."""
        self._client, self._node_name, self._rng = client, node_name, rng
        self._namespace, self._own_name = own
        self._silence_seconds = silence_seconds
        self._name = f"{VALIDATION_NAME}-{hashlib.sha256(node_name.encode()).hexdigest()[:10]}"

    async def create(self, resource: str, limit_seconds: float) -> None:
        """Make the pod, which the kubelet ends at the limit even where the agent has ended before.

        Raises:
            KubeError: no answer, or a refusal.
        """
        if self._own_name is None:
            raise OwnPodUnknown
        path, attempted = await self._find_path(), f"make the pod {self._name} that validates this node"
        own = await self._client.request("GET", f"{path}/{self._own_name}", attempted=f"read our pod {self._own_name}")
        with making_sense(f"read our pod {self._own_name}"):
            body = self._render(own, resource, limit_seconds)
        try:
            await self._client.request("POST", path, attempted=attempted, body=body)
        except ApiForbidden as error:
            raise ValidationForbidden(error.attempted, error.status, error.message) from error

    async def follow(self) -> AsyncGenerator[ValidationPod | None, None]:
        """The pod now, and after each change; `None` once the pod is gone.

        Raises:
            KubeError: the watch broke, or a refusal.
        """
        selector = {"fieldSelector": f"metadata.name={self._name}"}
        what, path = "the pod that validates this node", await self._find_path()
        follower = Follower(self._client, path, selector, what, self._rng, silence_seconds=self._silence_seconds)
        try:
            async with aclosing(follow_all(follower, _parse)) as tables:
                async for table in tables:
                    yield table.get(self._name)
        except ApiForbidden as error:
            raise ValidationForbidden(error.attempted, error.status, error.message) from error

    async def remove(self) -> None:
        """Remove the pod, if there is one.

        Raises:
            KubeError: no answer, or a refusal.
        """
        path, attempted = await self._find_path(), f"remove the pod {self._name} that validates this node"
        body = {"apiVersion": "v1", "kind": "DeleteOptions", "gracePeriodSeconds": 1}
        try:
            await self._client.request("DELETE", f"{path}/{self._name}", attempted=attempted, body=body)
        except ApiNotFound:
            return
        except ApiForbidden as error:
            raise ValidationForbidden(error.attempted, error.status, error.message) from error

    async def _find_path(self) -> str:
        if self._namespace is None:
            self._namespace = await self._client.read_namespace()
        return f"/api/v1/namespaces/{self._namespace}/pods"

    def _render(self, own: Json, resource: str, limit_seconds: float) -> Json:
        spec = own["spec"]
        containers = spec["containers"]
        agent = next((each for each in containers if each["name"] == _CONTAINER), containers[0])
        container = {
            "name": "validation",
            "image": str(agent["image"]),
            "imagePullPolicy": agent.get("imagePullPolicy", "IfNotPresent"),
            "args": ["gpu", "validate"],
            "resources": {"limits": {resource: "1"}},
            "terminationMessagePolicy": "FallbackToLogsOnError",
            "securityContext": {
                "runAsNonRoot": True,
                "runAsUser": 65534,
                "readOnlyRootFilesystem": True,
                "allowPrivilegeEscalation": False,
                "capabilities": {"drop": ["ALL"]},
                "seccompProfile": {"type": "RuntimeDefault"},
            },
        }
        return {
            "apiVersion": "v1",
            "kind": "Pod",
            "metadata": {
                "name": self._name,
                "namespace": self._namespace,
                "labels": {"app.kubernetes.io/name": VALIDATION_NAME},
                "ownerReferences": [each for each in parse_owners(own) if each["kind"] == "Pod"],
            },
            "spec": {
                **{key: spec[key] for key in _KEPT if spec.get(key)},
                "nodeName": self._node_name,
                "restartPolicy": "Never",
                "activeDeadlineSeconds": max(1, round(limit_seconds)),
                "automountServiceAccountToken": False,
                "tolerations": [{"operator": "Exists"}],
                "containers": [container],
            },
        }


def _parse(document: Json) -> tuple[str, ValidationPod]:
    with making_sense("read the pod that validates this node"):
        status = document.get("status") or {}
        told = [str(status.get("message") or "")]
        for container in status.get("containerStatuses") or ():
            state = container.get("state") or {}
            words = state.get("terminated") or state.get("waiting") or {}
            told += [str(words.get(key) or "") for key in ("reason", "message")]
        return str(document["metadata"]["name"]), ValidationPod(
            phase=str(status.get("phase") or "Pending"),
            reason=str(status.get("reason") or ""),
            message=" ".join(each for each in told if each),
        )
