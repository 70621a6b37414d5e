"""The stand-in kubelet's pod resources service: podresources v1, with the real kubelet's gaps and limits.

Failed pods and ordinary init containers are left out, pods without devices are not, a device stands once for each NUMA
node, and more than 100 calls a second (10 at once) are refused.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Final

from grpclib.const import Status

from nodeagent.edge.grpc.calls import CallRefused, Methods, Unary
from nodeagent.edge.kubelet.proto.pod_resources_pb2 import (
    AllocatableResourcesRequest,
    AllocatableResourcesResponse,
    ContainerDevices,
    ContainerResources,
    GetPodResourcesRequest,
    GetPodResourcesResponse,
    ListPodResourcesRequest,
    ListPodResourcesResponse,
    NUMANode,
    PodResources,
    TopologyInfo,
)
from nodeagent_sim.kubelet.checkpoint import NO_NUMA_NODE, PodDevices
from nodeagent_sim.kubelet.device_manager import DeviceManager
from nodeagent_sim.kubelet.pods import Pod

QUESTIONS_PER_SECOND: Final = 100.0
BURST: Final = 10.0


class RateLimit:
    """A bucket that fills at a steady rate."""

    def __init__(self, now: Callable[[], float]) -> None:
        self._now, self._tokens, self._filled_at = now, BURST, now()

    def take(self) -> bool:
        """Whether another call is allowed."""
        now = self._now()
        self._tokens = min(BURST, self._tokens + (now - self._filled_at) * QUESTIONS_PER_SECOND)
        self._filled_at = now
        if self._tokens < 1.0:
            return False
        self._tokens -= 1.0
        return True


class PodResourcesService:
    """Answers from the device manager and the list of pods."""

    def __init__(self, manager: DeviceManager, pods: Callable[[], Iterable[Pod]], now: Callable[[], float]) -> None:
        self._manager, self._pods, self._limit = manager, pods, RateLimit(now)

    def methods(self) -> Methods:
        """The methods for a server."""
        service = "/v1.PodResourcesLister"
        return {
            f"{service}/List": Unary(ListPodResourcesRequest, self._list),
            f"{service}/Get": Unary(GetPodResourcesRequest, self._get),
            f"{service}/GetAllocatableResources": Unary(AllocatableResourcesRequest, self._get_allocatable),
        }

    async def _list(self, _request: ListPodResourcesRequest) -> ListPodResourcesResponse:
        self._check_rate()
        held: dict[str, list[PodDevices]] = {}
        for entry in self._manager.entries():
            held.setdefault(entry.pod_uid, []).append(entry)
        pods = [_render(pod, held.get(pod.uid, ())) for pod in self._pods() if pod.active]
        return ListPodResourcesResponse(pod_resources=pods)

    async def _get(self, request: GetPodResourcesRequest) -> GetPodResourcesResponse:
        self._check_rate()
        for pod in self._pods():
            if pod.active and (pod.namespace, pod.name) == (request.pod_namespace, request.pod_name):
                return GetPodResourcesResponse(
                    pod_resources=_render(pod, [each for each in self._manager.entries() if each.pod_uid == pod.uid])
                )
        raise CallRefused(Status.UNKNOWN, f"pod {request.pod_name} in namespace {request.pod_namespace} not found")

    async def _get_allocatable(self, _request: AllocatableResourcesRequest) -> AllocatableResourcesResponse:
        self._check_rate()
        devices = [
            entry
            for resource, known in self._manager.devices().items()
            for device in known.values()
            if device.healthy
            for entry in _entries(resource, dict.fromkeys(device.numa_nodes or (NO_NUMA_NODE,), (device.id,)))
        ]
        return AllocatableResourcesResponse(devices=devices)

    def _check_rate(self) -> None:
        if not self._limit.take():
            raise CallRefused(Status.RESOURCE_EXHAUSTED, "rejected by rate limit")


def _render(pod: Pod, entries: Iterable[PodDevices]) -> PodResources:
    containers = [
        ContainerResources(
            name=spec.name,
            devices=[
                line
                for entry in entries
                if entry.container == spec.name
                for line in _entries(entry.resource, entry.devices)
            ],
        )
        for spec in pod.containers
        if not spec.init
    ]
    return PodResources(name=pod.name, namespace=pod.namespace, containers=containers)


def _entries(resource: str, devices: Mapping[int, Iterable[str]]) -> Iterator[ContainerDevices]:
    for node, ids in devices.items():
        topology = None if node == NO_NUMA_NODE else TopologyInfo(nodes=[NUMANode(ID=node)])
        for device in ids:
            yield ContainerDevices(resource_name=resource, device_ids=[device], topology=topology)
