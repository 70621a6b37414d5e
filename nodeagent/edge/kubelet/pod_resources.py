"""The kubelet's own word on devices in use: a client of podresources v1.

Owns a common form of answers (each device once, containers without devices left out) and a common error.
The connection is kept between two questions, as each pod's start asks once. Another kubelet gets a new connection.
"""

from pathlib import Path
from typing import Final, TypeVar

from anyio import sleep
from google.protobuf.message import DecodeError, Message

from nodeagent.edge.grpc.caller import KeptCaller
from nodeagent.edge.grpc.errors import AnswerBroken, AnswerRefused, Status
from nodeagent.edge.kubelet.errors import PodResourcesUnavailable
from nodeagent.edge.kubelet.proto import pod_resources_pb2 as wire
from nodeagent.model.allocation import ClaimedDevice, PodIdentity
from nodeagent.model.ids import DeviceId, ResourceName
from nodeagent.model.ports import ContainerDevices, PodListing

SERVICE: Final = "/v1.PodResourcesLister"
ANSWER_SECONDS: Final = 5.0
ATTEMPTS: Final = 4
RETRY_SECONDS: Final = 0.05
"""The kubelet turns away more than 100 questions a second; the kubelet's bucket refills in hundredths."""

Answer = TypeVar("Answer", bound=Message)


class PodResourcesClient:
    """Asks the kubelet for devices in use."""

    def __init__(self, socket: Path) -> None:
        self._socket, self._caller = socket, KeptCaller(socket)

    def close(self) -> None:
        """Hang up."""
        self._caller.close()

    async def read_pods(self) -> PodListing:
        """All active pods, and the pods' containers with devices."""
        request = wire.ListPodResourcesRequest()
        answer = await self._ask("list pods", "List", request, wire.ListPodResourcesResponse)
        return PodListing(
            pods=tuple(PodIdentity(namespace=pod.namespace, name=pod.name) for pod in answer.pod_resources),
            containers=tuple(held for pod in answer.pod_resources for held in parse_pod(pod)),
            claimed=tuple(held for pod in answer.pod_resources for held in parse_claims(pod)),
        )

    async def read_allocatable(self) -> dict[ResourceName, frozenset[DeviceId]]:
        """The healthy devices of each resource, including devices in use."""
        request = wire.AllocatableResourcesRequest()
        answer = await self._ask(
            "list allocatable devices", "GetAllocatableResources", request, wire.AllocatableResourcesResponse
        )
        # The kubelet has an entry for each device, of which there may be thousands.
        found: dict[ResourceName, set[DeviceId]] = {}
        for entry in answer.devices:
            found.setdefault(ResourceName(entry.resource_name), set()).update(map(DeviceId, entry.device_ids))
        return {resource: frozenset(devices) for resource, devices in found.items()}

    async def _ask(self, attempted: str, method: str, request: Message, kind: type[Answer]) -> Answer:
        path, sent = f"{SERVICE}/{method}", request.SerializeToString()
        attempt = 1
        while True:
            try:
                received = await self._caller.call_unary(path, sent, timeout_seconds=ANSWER_SECONDS)
                return kind.FromString(received)
            except AnswerRefused as error:
                if error.status is not Status.RESOURCE_EXHAUSTED or attempt == ATTEMPTS:
                    raise PodResourcesUnavailable(attempted, str(self._socket), str(error)) from error
            except TimeoutError as error:
                reason = f"no answer within {ANSWER_SECONDS:g} s"
                raise PodResourcesUnavailable(attempted, str(self._socket), reason) from error
            except (AnswerBroken, DecodeError, OSError) as error:
                raise PodResourcesUnavailable(attempted, str(self._socket), str(error)) from error
            await sleep(RETRY_SECONDS * attempt)
            attempt += 1


def parse_pod(pod: wire.PodResources) -> tuple[ContainerDevices, ...]:
    """The devices of each container of a pod, by resource; a device on two NUMA nodes is one device.

    Sorted, because the kubelet's order differs each time, and equal answers shall be equal.
    """
    held: dict[tuple[str, str], set[str]] = {}
    for container in pod.containers:
        for entry in container.devices:
            held.setdefault((container.name, entry.resource_name), set()).update(entry.device_ids)
    identity = PodIdentity(namespace=pod.namespace, name=pod.name)
    return tuple(
        ContainerDevices(
            pod=identity,
            container=container,
            resource=ResourceName(resource),
            devices=tuple(map(DeviceId, sorted(devices))),
        )
        for (container, resource), devices in sorted(held.items())
    )


def parse_claims(pod: wire.PodResources) -> tuple[ClaimedDevice, ...]:
    """The claimed devices of each container of a pod; sorted for the same reason."""
    identity = PodIdentity(namespace=pod.namespace, name=pod.name)
    found = {
        ClaimedDevice(
            pod=identity,
            container=container.name,
            claim=claim.claim_name,
            claim_namespace=claim.claim_namespace,
            driver=held.driver_name,
            pool=held.pool_name,
            device=held.device_name,
        )
        for container in pod.containers
        for claim in container.dynamic_resources
        for held in claim.claim_resources
    }
    return tuple(sorted(found, key=lambda one: (one.container, one.claim, one.driver, one.pool, one.device)))
