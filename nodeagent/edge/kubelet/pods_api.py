"""The pods of this node by the kubelet's own word: a client of the pods API, on from Kubernetes 1.37 on.

Owns the table of pods between two messages. Refuses labels and annotations: the kubelet tells no change of these alone,
so that the API server is the only source of both.
"""

from collections.abc import AsyncGenerator, Mapping
from contextlib import aclosing
from pathlib import Path
from typing import Final

from google.protobuf.message import DecodeError

from nodeagent.edge.grpc.caller import call_stream
from nodeagent.edge.grpc.errors import AnswerBroken, AnswerRefused
from nodeagent.edge.kubelet.errors import PodsUnavailable
from nodeagent.edge.kubelet.proto import pods_pb2 as wire
from nodeagent.model.allocation import PodIdentity
from nodeagent.model.ports import KubeletPod

WATCH: Final = "/v1alpha1.Pods/WatchPods"


class KubeletPods:
    """Follows the pods of this node."""

    def __init__(self, socket: Path) -> None:
        self._socket = socket

    async def follow(self) -> AsyncGenerator[Mapping[str, KubeletPod], None]:
        """All pods by uid, once the kubelet has told all, and after each change; ends when the kubelet ends the stream.

        Raises:
            PodsUnavailable: the kubelet serves no pods API, does not know all pods yet, or dropped a slow reader.
        """
        known: dict[str, KubeletPod] = {}
        is_whole = False
        try:
            async with aclosing(call_stream(self._socket, WATCH, b"")) as messages:
                async for message in messages:
                    event = wire.WatchPodsEvent.FromString(message)
                    is_end = event.type == wire.INITIAL_SYNC_COMPLETE
                    is_news = is_end or _apply(known, event)
                    is_whole = is_whole or is_end
                    if is_whole and is_news:
                        yield dict(known)
        except (AnswerRefused, AnswerBroken, DecodeError, OSError) as error:
            raise PodsUnavailable(str(self._socket), str(error)) from error


def _apply(known: dict[str, KubeletPod], event: wire.WatchPodsEvent) -> bool:
    """Take a change over; returns whether anything read here is new."""
    pod = parse_pod(event.pod)
    if event.type == wire.DELETED:
        return known.pop(pod.identity.uid, None) is not None
    if known.get(pod.identity.uid) == pod:
        return False
    known[pod.identity.uid] = pod
    return True


def parse_pod(content: bytes) -> KubeletPod:
    """The pod of a message.

    Raises:
        DecodeError: the bytes are no pod.
    """
    pod = wire.Pod.FromString(content)
    return KubeletPod(
        identity=PodIdentity(namespace=pod.metadata.namespace, name=pod.metadata.name, uid=pod.metadata.uid),
        phase=pod.status.phase,
        containers=tuple(each.container_id for each in pod.status.container_statuses),
    )
