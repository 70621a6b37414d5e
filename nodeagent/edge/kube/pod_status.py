"""The condition of a pod that holds a GPU with a fault, written into the pod's status.

Owns the patch, which is meant for exactly one pod: a later pod of the same name has another uid, and is refused.
Refuses to take a condition away again: the pod's owner decides by it after the pod's end.
"""

from nodeagent.edge.kube.client import KubeClient
from nodeagent.edge.kube.errors import ApiConflict, ApiForbidden, ApiNotFound
from nodeagent.edge.kube.node_document import FIELD_MANAGER, render_time
from nodeagent.model.cluster import GPU_FAULT_CONDITION, EventSeries


class PodStatusForbidden(ApiForbidden):
    """The right to write the status of pods is missing, or the policy has no such condition."""

    remedy = "apply deploy/rbac-pod-conditions.yaml, and run the agent with a token that is bound to its node"


class KubePodStatus:
    """The status of pods, over a client."""

    def __init__(self, client: KubeClient) -> None:
        self._client = client

    async def write_fault(self, series: EventSeries) -> bool:
        """Set the condition, at once, as the pod may end; returns whether the pod was still there.

        Raises:
            KubeError: the API server refuses, or does not answer.
        """
        pod, event = series.pod, series.event
        condition = {
            "type": GPU_FAULT_CONDITION,
            "status": "True",
            "reason": event.reason,
            "message": event.note,
            "lastTransitionTime": render_time(series.first_seconds),
        }
        try:
            await self._client.request(
                "PATCH",
                f"/api/v1/namespaces/{pod.namespace}/pods/{pod.name}/status",
                attempted=f"write the condition {GPU_FAULT_CONDITION} of the pod {pod.describe()}",
                query={"fieldManager": FIELD_MANAGER},
                body={"metadata": {"uid": pod.uid}, "status": {"conditions": [condition]}},
                content_type="application/strategic-merge-patch+json",
                in_turn=False,
            )
        except ApiNotFound as error:
            error.demand_object()
            return False
        except ApiConflict:
            return False
        except ApiForbidden as error:
            raise PodStatusForbidden(error.attempted, error.status, error.message) from error
        return True
