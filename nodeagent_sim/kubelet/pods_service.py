"""The stand-in kubelet's pods API, as kubelets from 1.37 serve it: each pod, the end of that, each change of status.

A pod that fails is told as deleted, before its object goes; it is among the first pods of a later stream all the same.
"""

from collections.abc import Awaitable, Callable, Iterable
from typing import Final

from grpclib.const import Status

from nodeagent.edge.grpc.calls import CallRefused, Methods, Replies, Streaming
from nodeagent.edge.kubelet.proto import pods_pb2 as wire
from nodeagent_sim.kubelet.pods import Pod, PodPhase

FIRST_WITH_PODS: Final = 37


class PodsService:
    """Tells of pods until its kubelet ends."""

    def __init__(self, pods: Callable[[], Iterable[Pod]], wait_change: Callable[[], Awaitable[object]]) -> None:
        self._pods, self._wait_change = pods, wait_change
        self.knows_all = True
        """Whether all sources of pods are known; before, nothing is told."""
        self.drops_readers = False
        """Whether readers are dropped for being slow, at the next change."""

    def methods(self) -> Methods:
        """The methods for a server."""
        return {"/v1alpha1.Pods/WatchPods": Streaming(wire.WatchPodsRequest, self._watch)}

    async def _watch(self, _request: wire.WatchPodsRequest, replies: Replies) -> None:
        if not self.knows_all:
            raise CallRefused(Status.FAILED_PRECONDITION, "Kubelet is initializing")
        told = self._index()
        for pod in told.values():
            await replies.send(_render(wire.ADDED, pod))
        await replies.send(wire.WatchPodsEvent(type=wire.INITIAL_SYNC_COMPLETE))
        while True:
            now = self._index()
            for pod in [pod for uid, pod in told.items() if uid not in now and pod.active]:
                await replies.send(_render(wire.DELETED, pod))
            for pod in [pod for uid, pod in now.items() if told.get(uid) != pod]:
                kind = wire.MODIFIED if pod.uid in told else wire.ADDED
                await replies.send(_render(kind if pod.active else wire.DELETED, pod))
            told = now
            await self._wait_change()
            if self.drops_readers:
                self.drops_readers = False
                raise CallRefused(Status.RESOURCE_EXHAUSTED, "watch client channel closed")

    def _index(self) -> dict[str, Pod]:
        return {pod.uid: pod for pod in self._pods()}


def _render(kind: wire.EventType, pod: Pod) -> wire.WatchPodsEvent:
    metadata = wire.ObjectMeta(name=pod.name, namespace=pod.namespace, uid=pod.uid)
    if kind == wire.DELETED:
        return wire.WatchPodsEvent(type=kind, pod=wire.Pod(metadata=metadata).SerializeToString())
    made = [spec for spec in pod.containers if not spec.init] if pod.phase is PodPhase.RUNNING else []
    statuses = [
        wire.ContainerStatus(name=spec.name, container_id=f"containerd://{pod.uid}-{spec.name}") for spec in made
    ]
    status = wire.PodStatus(phase=pod.phase, container_statuses=statuses)
    return wire.WatchPodsEvent(type=kind, pod=wire.Pod(metadata=metadata, status=status).SerializeToString())
