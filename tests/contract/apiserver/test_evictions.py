"""Pods that are asked to go."""

from msgspec.structs import replace

from nodeagent.edge.kube.evictions import KubeDraining, KubeEvictions
from nodeagent.model.allocation import PodIdentity
from nodeagent.model.cluster import Eviction
from nodeagent.model.drains import BoundPod, EvictionAnswer
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


async def test_an_eviction_is_rehearsed(open_api_server: OpenApiServer) -> None:
    """The answer is that of an eviction, and the pod stays as it is."""
    async with open_api_server() as server, server.client() as client:
        application, draining = server.new_name("app"), KubeDraining(client)
        pod = await add_running(server, application)
        free = await add_running(server, server.new_name("app"))
        await server.protect(application)
        detail = f"The disruption budget {application} needs 1 healthy pods and has 1 currently"
        assert await draining.rehearse(pod) == EvictionAnswer(eviction=Eviction.BLOCKED, detail=detail)
        assert (await draining.rehearse(free)).eviction is Eviction.ASKED
        other = replace(free, uid=OTHER_UID)
        assert (await draining.rehearse(other)).eviction is Eviction.CHANGED
        assert (await draining.rehearse(replace(free, name="none"))).eviction is Eviction.GONE
        for one in (pod, free):
            assert "deletionTimestamp" not in (await server.read("pods", one.name))["metadata"]


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


async def read(draining: KubeDraining, pod: PodIdentity) -> BoundPod:
    seen = await draining.read_pod(pod)
    assert seen is not None
    return seen


async def test_a_pod_of_a_drain_leaves_only_as_it_was_read(open_api_server: OpenApiServer) -> None:
    """By uid and version, for an eviction as for a deletion; the version is the one before the server's own marks."""
    async with open_api_server() as server, server.client() as client:
        draining = KubeDraining(client)
        pod = await add_running(server, server.new_name("app"), grace_seconds=600)
        seen = await read(draining, pod)
        assert (seen.controller, seen.is_static, seen.is_going) == ("", False, False)
        assert await draining.read_pod(replace(pod, uid=OTHER_UID)) is None
        old = replace(seen, version="1")
        assert (await draining.evict(old)).eviction is Eviction.CHANGED
        assert not await draining.delete(old)
        assert not (await read(draining, pod)).is_going
        assert await draining.evict(seen) == EvictionAnswer(eviction=Eviction.ASKED)
        assert (await read(draining, pod)).is_going
        brief = await add_running(server, server.new_name("app"))
        assert await draining.delete(await read(draining, brief))
        assert await draining.read_pod(brief) is None
        gone = BoundPod(pod=brief, version="1")
        assert (await draining.evict(gone)).eviction is Eviction.GONE
        assert not await draining.delete(gone)


async def test_a_drain_is_told_the_budget_that_says_no(open_api_server: OpenApiServer) -> None:
    """And of several budgets, about which the server has no reason but its words; both stop no deletion."""
    async with open_api_server() as server, server.client() as client:
        draining, application = KubeDraining(client), server.new_name("app")
        pod = await add_running(server, application)
        await server.protect(application)
        blocked = await draining.evict(await read(draining, pod))
        assert blocked.eviction is Eviction.BLOCKED
        assert blocked.detail == f"The disruption budget {application} needs 1 healthy pods and has 1 currently"
        await server.protect(application)
        several = await draining.evict(await read(draining, pod))
        assert several.eviction is Eviction.SEVERAL_BUDGETS
        assert several.detail.startswith("This pod has more than one PodDisruptionBudget")
        assert await draining.delete(await read(draining, pod))
