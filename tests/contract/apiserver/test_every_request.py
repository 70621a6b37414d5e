"""Every request of the agent, made by the function that makes it, on whichever API server is under test.

A function of the package that speaks to the API server and is not called here fails the last line.
"""

from collections.abc import AsyncGenerator
from contextlib import aclosing
from random import Random
from typing import TypeVar

from msgspec.structs import replace

from nodeagent.cli.doctor.observe import observe_api
from nodeagent.config.load import load_settings
from nodeagent.core.clock import SystemClock
from nodeagent.edge.kube.client import KubeClient
from nodeagent.edge.kube.errors import ApiConflict, NodeMissing
from nodeagent.edge.kube.evictions import KubeDraining, KubeEvictions
from nodeagent.edge.kube.fleet import PodAnnotations, watch_nodes, watch_pods
from nodeagent.edge.kube.lease import KubeLease, KubeSlots
from nodeagent.edge.kube.node import KubeNode
from nodeagent.edge.kube.node_feature import NodeFeatureObject
from nodeagent.edge.kube.own_pod import KubeValidationPod
from nodeagent.edge.kube.pod_requests import KubePodRequests
from nodeagent.edge.kube.pods import KubeNominatedPods, KubePods, KubePodStatus, KubeUnstartedPods
from nodeagent.edge.kube.readiness.cluster import ClusterApi
from nodeagent.edge.kube.resource_claims import KubeClaims
from nodeagent.edge.kube.slices import KubeDeviceClasses, KubeSlices
from nodeagent.model.allocation import PodIdentity
from nodeagent.model.cluster import EventSeries, Eviction, NodeCondition, NodeEvent, Taint, ValidationPod
from nodeagent.model.readiness import AGENT_LABEL, AGENT_NAME, ClusterCondition
from nodeagent.model.scheduling import SeenPod
from nodeagent.model.slices import DeviceClass, SliceContent, SliceDevice, SlicePool
from tests.support.wire.api_requests import find_callers, recorded_callers
from tests.support.wire.api_servers import (
    NAMESPACE,
    ApiServerUnderTest,
    OpenApiServer,
    render_claim,
    render_class,
    render_daemon_set,
    render_node,
    render_pod,
)

T = TypeVar("T")
SILENCE_SECONDS = 60.0


async def test_every_request_is_answered_as_the_agent_reads_it(open_api_server: OpenApiServer) -> None:
    """Each function that speaks to the API server gets an answer that it understands."""
    async with open_api_server() as server, server.client() as client:
        with recorded_callers() as seen:
            for ask in (
                ask_of_node,
                ask_of_pods,
                ask_of_validation,
                ask_of_claims,
                ask_of_slices,
                ask_of_feature,
                ask_of_fleet,
            ):
                name = server.new_name("node")
                await server.add("nodes", render_node(name))
                await ask(server, client, name)
            await ask_of_lease(server, client)
            await ask_of_readiness(server, client)
            await ask_of_classes(server, client)
            await ask_of_rights(server)
        assert seen >= find_callers(), sorted(find_callers() - seen)


async def take(values: AsyncGenerator[T, None]) -> T:
    async with aclosing(values):
        async for value in values:
            return value
    raise AssertionError("nothing came")


async def ask_of_node(server: ApiServerUnderTest, client: KubeClient, name: str) -> None:
    node = KubeNode(client, name, SystemClock(), Random(), silence_seconds=SILENCE_SECONDS)
    seen = await node.read_node()
    async with aclosing(node.follow_node()) as states:
        assert (await anext(states)).owned_labels == ()
        await node.apply_labels(seen, {"nvidia.com/gpu.count": "8"})
        assert (await anext(states)).owned_labels == ("nvidia.com/gpu.count",)
    condition = NodeCondition(status="False", reason="DriverStuck", message="m")
    await node.write_condition(condition, changed=True)
    assert (await node.read_node()).condition == condition
    await node.remove_condition(condition.type)
    await node.write_label("nvidia.com/mig.config.state", "pending")
    await node.write_annotation("nvidia.com/x", "1")
    taint = Taint(key="nvidia.com/starting", effect="NoSchedule")
    await node.change_taint(taint, present=True)
    found = await node.read_node()
    assert (found.condition, found.annotations["nvidia.com/x"]) == (None, "1")
    assert found.labels == {"nvidia.com/gpu.count": "8", "nvidia.com/mig.config.state": "pending"}
    assert taint in found.taints
    await node.write_label("nvidia.com/mig.config.state", None)
    assert (await node.read_node()).labels == {"nvidia.com/gpu.count": "8"}
    await node.change_taint(taint, present=False)
    await node.write_annotation("nvidia.com/x", None)
    await node.write_event(found, NodeEvent(reason="GPUUnhealthy", note="n"), 2)
    pod = PodIdentity(namespace=NAMESPACE, name="x", uid=found.uid)
    event = NodeEvent(reason="GPUXidError", note="n", pod=pod)
    for is_written in (False, True):
        series = EventSeries(event=event, pod=pod, first_seconds=1.0, last_seconds=2.0, is_written=is_written)
        await node.write_series(series)
    found = await node.read_node()
    assert ("nvidia.com/x" in found.annotations, taint in found.taints) == (False, False)
    await server.drop("nodes", name)
    try:
        await node.read_node()
    except NodeMissing:
        return
    raise AssertionError("the node is gone")


async def ask_of_pods(server: ApiServerUnderTest, client: KubeClient, node: str) -> None:
    name = server.new_name("pod")
    labels = KubePods(client, node, Random(), silence_seconds=SILENCE_SECONDS)
    requests = KubePodRequests(client, node, Random(), silence_seconds=SILENCE_SECONDS)
    async with aclosing(labels.follow_pods()) as tables, aclosing(requests.follow()) as wanted:
        assert ((await anext(tables)).pods, await anext(wanted)) == ((), {})
        made = await server.add("pods", render_pod(name, node, app="x"))
        (pod,) = (await anext(tables)).pods
        assert (pod.pod, pod.uid, pod.labels) == (name, made["metadata"]["uid"], {"app": "x"})
        request = (await anext(wanted))[NAMESPACE, name]
        assert (request.containers[0].limits, request.is_finished) == ({"nvidia.com/gpu": "1"}, False)
        await requests.annotate(request.pod, {"nvidia.com/y": "2"})
        assert (await anext(wanted))[NAMESPACE, name].annotations["nvidia.com/y"] == "2"
    for uid, is_there in ((request.pod.uid, True), ("another", False)):
        fault = NodeEvent(reason="GPUFault", note="n", pod=replace(request.pod, uid=uid))
        series = EventSeries(event=fault, pod=replace(request.pod, uid=uid), first_seconds=1.0, last_seconds=1.0)
        assert await KubePodStatus(client).write_fault(series) is is_there
    claims, evictions = KubeClaims(client), KubeEvictions(client, node)
    assert await claims.is_alive(request.pod) is True
    assert await claims.is_alive(PodIdentity(namespace=NAMESPACE, name=name, uid="another")) is False
    assert await evictions.list_pods(("x",)) == (f"{NAMESPACE}/{name}",)
    assert await evictions.list_pods(("y",)) == ()
    draining = KubeDraining(client)
    bound = await draining.read_pod(request.pod)
    assert bound is not None
    assert (await draining.evict(replace(bound, version="1"))).eviction is Eviction.CHANGED
    assert await evictions.evict_pod(request.pod) is Eviction.ASKED
    assert await evictions.evict_pod(request.pod) is Eviction.GONE
    assert await claims.is_alive(request.pod) is False
    assert await take(KubeNominatedPods(client, node, Random(), silence_seconds=SILENCE_SECONDS).follow()) == {}
    await ask_of_unstarted_pods(
        server, KubeUnstartedPods(client, node, Random(), silence_seconds=SILENCE_SECONDS), node
    )


async def ask_of_unstarted_pods(server: ApiServerUnderTest, pods: KubeUnstartedPods, node: str) -> None:
    name = server.new_name("pod")
    async with aclosing(pods.follow()) as tables:
        assert await anext(tables) == {}
        made = await server.add("pods", render_pod(name, node))
        seen = (await anext(tables))[made["metadata"]["uid"]]
        assert (seen.pod.name, seen.phase, seen.controller, seen.has_run) == (name, "Pending", "", False)
        assert (await pods.delete(seen), await pods.delete(seen)) == (True, False)


async def ask_of_validation(server: ApiServerUnderTest, client: KubeClient, node: str) -> None:
    """The pod of the agent's own image, which nobody runs here, from its making to its end."""
    own = server.new_name("pod")
    await server.add("pods", render_pod(own, node))
    pods = KubeValidationPod(client, node, (NAMESPACE, own), Random(), silence_seconds=SILENCE_SECONDS)
    await pods.remove()
    async with aclosing(pods.follow()) as states:
        assert await anext(states) is None
        await pods.create("nvidia.com/gpu", 300)
        assert await anext(states) == ValidationPod(phase="Pending")
    await pods.remove()


async def ask_of_claims(server: ApiServerUnderTest, client: KubeClient, node: str) -> None:
    name, claims = server.new_name("claim"), KubeClaims(client)
    assert await claims.find_claim(NAMESPACE, name) is None
    made = await server.add("resourceclaims", render_claim(name))
    claim = await claims.find_claim(NAMESPACE, name)
    assert claim is not None
    assert (claim.uid, claim.is_allocated, claim.pods) == (made["metadata"]["uid"], False, ())
    await claims.write_conditions(claim, (), 0.0)
    try:
        await claims.write_conditions(replace(claim, uid="another"), (), 0.0)
    except ApiConflict:
        return
    raise AssertionError("the claim is another one")


async def ask_of_slices(server: ApiServerUnderTest, client: KubeClient, node: str) -> None:
    slices = KubeSlices(
        client, SlicePool(driver="gpu.nvidia.com", node=node), Random(), silence_seconds=SILENCE_SECONDS
    )
    uid = await slices.read_node_uid()
    one, other = (SliceContent(devices=(SliceDevice(name=each),)) for each in ("gpu-0", "gpu-1"))
    name = server.new_name("slice")
    assert await slices.rehearse(name, one, (1, 1), uid, None) == one
    made = await slices.create(name, one, (1, 1), uid)
    async with aclosing(slices.follow_slices()) as tables:
        assert dict(await anext(tables)) == {name: made}
        changed = await slices.update(made, other, (2, 1), uid)
        assert dict(await anext(tables)) == {name: changed}
    assert (changed.content, changed.uid) == (other, made.uid)
    assert await slices.list_slices() == (changed,)
    await slices.delete(changed)
    await slices.delete(changed)
    assert await slices.list_slices() == ()


async def ask_of_classes(server: ApiServerUnderTest, client: KubeClient) -> None:
    classes = KubeDeviceClasses(client, Random(), silence_seconds=SILENCE_SECONDS)
    name, selector = server.new_name("class"), "device.driver == 'gpu.nvidia.com'"
    async with aclosing(classes.follow_classes()) as tables:
        assert name not in await anext(tables)
        await server.add("deviceclasses", render_class(name, "example.com/gpu", selector))
        assert (await anext(tables))[name] == DeviceClass(name=name, resource="example.com/gpu", selectors=(selector,))
        await server.drop("deviceclasses", name)
        assert name not in await anext(tables)


async def ask_of_feature(server: ApiServerUnderTest, client: KubeClient, node: str) -> None:
    pod, owner = server.new_name("pod"), {"apiVersion": "apps/v1", "kind": "DaemonSet", "name": "agent", "uid": "u"}
    document = render_pod(pod, node)
    document["metadata"]["ownerReferences"] = [owner]
    await server.add("pods", document)
    feature = NodeFeatureObject(client, node, NAMESPACE, pod)
    assert await feature.read() == ""
    await feature.write("nvidia.com/gpu.count=8\nnvidia.com/mig=no\n")
    await feature.write("nvidia.com/gpu.count=7\n")
    assert await feature.read() == "nvidia.com/gpu.count=7\n"
    stored = await server.read("nodefeatures", f"nvidia-features-for-{node}")
    assert [each["kind"] for each in stored["metadata"]["ownerReferences"]] == ["DaemonSet", "Pod"]
    assert stored["metadata"]["labels"] == {"nfd.node.kubernetes.io/node-name": node}
    assert (await feature.remove(), await feature.remove()) == (True, False)


async def ask_of_fleet(server: ApiServerUnderTest, client: KubeClient, node: str) -> None:
    nodes = [
        each.name async for page in watch_nodes(client, Random(), silence_seconds=60).list() for each in page.items
    ]
    assert node in nodes
    watch, name = watch_pods(client, Random(), silence_seconds=SILENCE_SECONDS), server.new_name("pod")
    version = [page.version async for page in watch.list()][-1]
    made = await server.add("pods", render_pod(name, node))
    change = await take(watch.watch(version))
    assert change.found is not None
    assert (change.kind, change.found.name, change.version) == ("changed", name, made["metadata"]["resourceVersion"])
    pod = SeenPod(namespace=NAMESPACE, name=name, uid=made["metadata"]["uid"])
    written = await PodAnnotations(client).write(pod, {"a": "1"}, at_version=change.version)
    assert int(written) > int(change.version)


async def ask_of_lease(server: ApiServerUnderTest, client: KubeClient) -> None:
    name = server.new_name("lease")
    lease, slots = (KubeLease(client, NAMESPACE, name, SystemClock()), KubeSlots(client, NAMESPACE, SystemClock()))
    assert await lease.read() is None
    assert await lease.read() != await lease.write(None, "one", 15)
    slot = await slots.read(name, 0)
    await slots.write(name, replace(slot, holder="two"))
    assert (slot.holder, (await slots.read(name, 0)).holder) == ("one", "two")


async def ask_of_readiness(server: ApiServerUnderTest, client: KubeClient) -> None:
    """The condition of the agents' DaemonSet, and what is read for it; another DaemonSet of the name is left alone."""
    api = ClusterApi(client, NAMESPACE, SystemClock(), Random(), silence_seconds=SILENCE_SECONDS)
    name, node, pod = (server.new_name(each) for each in ("agents", "node", "pod"))
    label = {AGENT_LABEL: AGENT_NAME}
    await server.add("nodes", render_node(node, **{"nvidia.com/gpu.product": "NVIDIA-H100"}))
    made = await server.add("daemonsets", render_daemon_set(name, **label))
    await server.add("pods", render_pod(pod, node, **label))
    (found,) = [each async for page in api.daemon_sets.list() for each in page.items if each.name == name]
    assert (found.namespace, found.uid, found.desired) == (NAMESPACE, made["metadata"]["uid"], 0)
    assert [each.node async for page in api.pods.list() for each in page.items if each.name == pod] == [node]
    models = [each.model async for page in api.nodes.list() for each in page.items if each.name == node]
    assert models == ["NVIDIA-H100"]
    broken = ClusterCondition(status="False", reason="NodesNotReady", message="n: DriverStuck: m")
    written = await api.write_condition(found, broken)
    change = await take(api.daemon_sets.watch(str(written.version - 1)))
    assert change.found is not None
    assert written.condition == change.found.condition == broken
    mended = await api.write_condition(written, replace(broken, status="True"))
    assert mended.condition == replace(broken, status="True")
    try:
        await api.write_condition(replace(mended, uid="another"), broken)
    except ApiConflict:
        return
    raise AssertionError("the DaemonSet is another one")


async def test_a_server_tells_its_version(open_api_server: OpenApiServer) -> None:
    """To anybody whom it knows, in the form of a tag."""
    async with open_api_server() as server:
        for token in (server.token, server.stranger):
            answer = await server.ask("GET", "/version", token=token)
            assert answer.status == 200
            assert answer.document["gitVersion"].startswith(f"v1.{answer.document['minor']}.")


async def ask_of_rights(server: ApiServerUnderTest) -> None:
    node = server.new_name("node")
    document = render_node(node)
    await server.add("nodes", document | {"status": {"allocatable": {"nvidia.com/gpu": "8", "cpu": "4"}}})
    for token, is_denied in ((None, False), (server.stranger, True)):
        path = server.write_kubeconfig(token)
        overrides = (f"kubernetes.kubeconfig={path}", f"node.name={node}")
        facts = await observe_api(load_settings(environ={}, overrides=overrides).settings, {})
        assert facts is not None
        assert (facts.problem, bool(facts.denied)) == ("", is_denied)
        assert facts.allocatable == ({} if is_denied else {"nvidia.com/gpu": 8})
