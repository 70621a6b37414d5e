"""Pods that are asked to go."""

from nodeagent.edge.kube.evictions import KubeEvictions
from nodeagent.model.allocation import PodIdentity
from nodeagent.model.cluster import Eviction
from tests.support.wire.api_servers import (
    MERGE,
    NAMESPACE,
    Answer,
    ApiServerUnderTest,
    OpenApiServer,
    path_of,
    render_node,
    render_pod,
)

OTHER_UID = "11111111-1111-1111-1111-111111111111"


async def add_running(server: ApiServerUnderTest, application: str, *, grace_seconds: int = 0) -> PodIdentity:
    """A pod that runs and is ready."""
    node, name = server.new_name("node"), server.new_name("pod")
    await server.add("nodes", render_node(node))
    document = render_pod(name, node, app=application)
    document["spec"]["terminationGracePeriodSeconds"] = grace_seconds
    made = await server.add("pods", document)
    status = {"phase": "Running", "conditions": [{"type": "Ready", "status": "True"}]}
    await server.ask("PATCH", f"{path_of('pods', name)}/status", {"status": status}, kind=MERGE)
    return PodIdentity(namespace=NAMESPACE, name=name, uid=made["metadata"]["uid"])


async def evict(server: ApiServerUnderTest, name: str, uid: str = "") -> Answer:
    document = {"apiVersion": "policy/v1", "kind": "Eviction", "metadata": {"name": name, "namespace": NAMESPACE}}
    if uid:
        document["deleteOptions"] = {"preconditions": {"uid": uid}}
    return await server.ask("POST", f"{path_of('pods', name)}/eviction", document)


async def test_a_pod_without_grace_is_gone(open_api_server: OpenApiServer) -> None:
    """The answer is a success, and the next one that there is no such pod."""
    async with open_api_server() as server:
        pod = await add_running(server, server.new_name("app"))
        asked = await evict(server, pod.name, pod.uid)
        assert (asked.status, asked.document["kind"], asked.document["status"]) == (201, "Status", "Success")
        missing = await evict(server, pod.name, pod.uid)
        assert missing.refusal == (404, "NotFound", f'pods "{pod.name}" not found')


async def test_a_pod_with_grace_is_there_until_its_kubelet_has_ended_it(open_api_server: OpenApiServer) -> None:
    """An eviction writes when the pod is to be gone; asked again, it is a success again."""
    async with open_api_server() as server:
        pod = await add_running(server, server.new_name("app"), grace_seconds=600)
        for _ in range(2):
            assert (await evict(server, pod.name, pod.uid)).status == 201
            metadata = (await server.read("pods", pod.name))["metadata"]
            assert metadata["deletionTimestamp"]
            assert metadata["deletionGracePeriodSeconds"] == 600


async def test_another_pod_of_that_name_is_not_meant(open_api_server: OpenApiServer) -> None:
    """The uid that is meant is a precondition."""
    async with open_api_server() as server:
        pod = await add_running(server, server.new_name("app"))
        refused = await evict(server, pod.name, OTHER_UID)
        assert refused.refusal[:2] == (409, "Conflict")
        assert (await server.read("pods", pod.name))["metadata"]["uid"] == pod.uid


async def test_a_budget_says_no(open_api_server: OpenApiServer) -> None:
    """Its no is 429 with its own cause, and our client tells it from a server that is busy."""
    async with open_api_server() as server:
        application = server.new_name("app")
        pod = await add_running(server, application)
        await server.protect(application)
        refused = await evict(server, pod.name, pod.uid)
        assert refused.refusal == (
            429,
            "TooManyRequests",
            "Cannot evict pod as it would violate the pod's disruption budget.",
        )
        (cause,) = refused.document["details"]["causes"]
        assert cause["reason"] == "DisruptionBudget"
        assert cause["message"] == f"The disruption budget {application} needs 1 healthy pods and has 1 currently"
        assert "retryAfterSeconds" not in refused.document["details"]
        assert "Retry-After" not in refused.headers
        async with server.client() as client:
            node = (await server.read("pods", pod.name))["spec"]["nodeName"]
            evictions = KubeEvictions(client, node)
            assert await evictions.evict_pod(pod) is Eviction.BLOCKED
            assert await evictions.list_pods((application, "none")) == (f"{NAMESPACE}/{pod.name}",)
            free = await add_running(server, server.new_name("app"))
            other = PodIdentity(namespace=NAMESPACE, name=free.name, uid=OTHER_UID)
            assert await evictions.evict_pod(other) is Eviction.GONE
            assert await evictions.evict_pod(free) is Eviction.ASKED
            assert await evictions.evict_pod(free) is Eviction.GONE
