"""The kubelet's account of who holds what, as it stands on the wire, whichever kubelet `open_kubelet` opens."""

from contextlib import closing
from typing import TypeVar

import anyio
import pytest
from google.protobuf.message import Message

from nodeagent.edge.grpc.caller import KeptCaller
from nodeagent.edge.grpc.errors import AnswerRefused, Status
from nodeagent.edge.kubelet.proto import pod_resources_pb2 as wire
from nodeagent.model.ids import DeviceId
from nodeagent.model.plugin import AdvertisedDevice
from tests.fakes.device_plugin import FakeDevicePlugin, make_devices
from tests.support.wire.kubelets import NAMESPACE, PATIENCE_SECONDS, KubeletUnderTest, OpenKubelet, running_session

GPU = "nvidia.com/gpu"
M = TypeVar("M", bound=Message)


async def ask(kubelet: KubeletUnderTest, method: str, request: Message, kind: type[M]) -> M:
    """One question, past the agent's own client."""
    caller = KeptCaller(kubelet.pod_resources_socket)
    try:
        path = f"/v1.PodResourcesLister/{method}"
        return kind.FromString(await caller.call_unary(path, request.SerializeToString(), timeout_seconds=10))
    finally:
        caller.close()


async def get_pod(kubelet: KubeletUnderTest, name: str) -> wire.PodResources:
    request = wire.GetPodResourcesRequest(pod_name=name, pod_namespace=NAMESPACE)
    return (await ask(kubelet, "Get", request, wire.GetPodResourcesResponse)).pod_resources


async def test_each_device_has_an_entry_of_its_own(open_kubelet: OpenKubelet) -> None:
    """One for each device and each NUMA node that it is near to; without any there is no topology at all."""
    near = AdvertisedDevice(id=DeviceId("GPU-near"), healthy=True, numa_node=0)
    far = AdvertisedDevice(id=DeviceId("GPU-far"), healthy=True, numa_node=None)
    async with (
        open_kubelet() as kubelet,
        running_session(FakeDevicePlugin((near, far)), kubelet.device_plugins_dir),
    ):
        await kubelet.wait_offer(GPU, 2, 2)
        assert not await kubelet.run_pod("holder", {GPU: 2})
        found = await get_pod(kubelet, "holder")
        allocatable = await ask(
            kubelet, "GetAllocatableResources", wire.AllocatableResourcesRequest(), wire.AllocatableResourcesResponse
        )
    assert (found.name, found.namespace) == ("holder", NAMESPACE)
    (container,) = found.containers
    assert container.name == "main"
    for entries in (container.devices, [each for each in allocatable.devices if each.resource_name == GPU]):
        told = {
            (
                each.resource_name,
                tuple(each.device_ids),
                tuple(node.ID for node in each.topology.nodes),
                each.HasField("topology"),
            )
            for each in entries
        }
        assert told == {(GPU, ("GPU-near",), (0,), True), (GPU, ("GPU-far",), (), False)}
        assert len(entries) == 2


async def test_pods_without_devices_are_listed(open_kubelet: OpenKubelet) -> None:
    """A pod that asks for nothing is in the account with its container, as long as it is there."""
    async with open_kubelet() as kubelet, running_session(FakeDevicePlugin(), kubelet.device_plugins_dir):
        await kubelet.wait_offer(GPU, 8, 8)
        assert not await kubelet.run_pod("plain", {})
        request = wire.ListPodResourcesRequest()
        listed = await ask(kubelet, "List", request, wire.ListPodResourcesResponse)
        (pod,) = [each for each in listed.pod_resources if each.name == "plain"]
        assert [(each.name, len(each.devices)) for each in pod.containers] == [("main", 0)]
        await kubelet.remove_pod("plain")
        listed = await ask(kubelet, "List", request, wire.ListPodResourcesResponse)
        assert [each for each in listed.pod_resources if each.name == "plain"] == []


async def test_a_pod_that_was_refused_is_not_there(open_kubelet: OpenKubelet) -> None:
    """A pod that is not admitted holds nothing, and is neither listed nor found."""
    plugin = FakeDevicePlugin()
    async with open_kubelet() as kubelet, running_session(plugin, kubelet.device_plugins_dir):
        await kubelet.wait_offer(GPU, 8, 8)
        why = await kubelet.force_pod("too-much", {GPU: 9})
        cause = f"requested number of devices unavailable for {GPU}. Requested: 9, Available: 8"
        assert why == f"Pod was rejected: Allocate failed due to {cause}, which is unexpected"
        with pytest.raises(AnswerRefused) as refused:
            await get_pod(kubelet, "too-much")
        assert refused.value.status is Status.UNKNOWN
        assert str(refused.value).endswith(f"pod too-much in namespace {NAMESPACE} not found")
        listed = await ask(kubelet, "List", wire.ListPodResourcesRequest(), wire.ListPodResourcesResponse)
        assert [each for each in listed.pod_resources if each.name == "too-much"] == []


async def test_what_is_sick_is_not_allocatable_and_stays_held(open_kubelet: OpenKubelet) -> None:
    """Allocatable are the healthy devices, held or not; a pod holds what it was given, whatever becomes of it."""
    plugin = FakeDevicePlugin()
    async with open_kubelet() as kubelet, running_session(plugin, kubelet.device_plugins_dir):
        await kubelet.wait_offer(GPU, 8, 8)
        assert not await kubelet.run_pod("holder", {GPU: 2})
        held = {each for devices in plugin.allocated for each in devices}
        ids = [device.id for device in make_devices(8)]
        sick = min(held)
        plugin.set_devices(tuple(AdvertisedDevice(id=each, healthy=each != sick) for each in ids))
        await kubelet.wait_offer(GPU, 8, 7)
        answer = await ask(
            kubelet, "GetAllocatableResources", wire.AllocatableResourcesRequest(), wire.AllocatableResourcesResponse
        )
        told = {each.device_ids[0] for each in answer.devices if each.resource_name == GPU}
        assert told == set(ids) - {sick}
        found = await get_pod(kubelet, "holder")
        assert {each.device_ids[0] for each in found.containers[0].devices} == held


async def test_who_asks_too_often_is_turned_away(open_kubelet: OpenKubelet) -> None:
    """Several who ask without a pause are refused before long, by a status of their own."""
    refused: list[AnswerRefused] = []
    async with open_kubelet() as kubelet, anyio.create_task_group() as tasks:

        async def ask_without_pause() -> None:
            with closing(KeptCaller(kubelet.pod_resources_socket)) as caller, anyio.fail_after(PATIENCE_SECONDS):
                while not refused:
                    try:
                        await caller.call_unary("/v1.PodResourcesLister/List", b"", timeout_seconds=10)
                    except AnswerRefused as error:
                        refused.append(error)

        for _ in range(8):
            tasks.start_soon(ask_without_pause)
    assert {(each.status, each.text) for each in refused} == {(Status.RESOURCE_EXHAUSTED, "rejected by rate limit")}
