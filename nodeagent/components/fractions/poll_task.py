"""Asks all sources about the containers with fractions: the kubelet, the API server, the runtime, the host's processes.

Refuses to take the silence of a source for an answer.
"""

from collections.abc import Awaitable, Callable, Collection, Mapping
from typing import NamedTuple, TypeVar

from nodeagent.components.fractions.foreign import list_unread
from nodeagent.components.fractions.judge import FractionPoll, is_of_kubelet
from nodeagent.core.channels.bus import Bus
from nodeagent.core.clock import Clock
from nodeagent.edge.kube.pod_requests import KubePodRequests
from nodeagent.edge.kubelet.kubelet_state import KubeletState
from nodeagent.model.errors import NodeagentError
from nodeagent.model.fractions import PodContainer
from nodeagent.model.ids import GpuUuid
from nodeagent.model.ports import PodListing, ProcessPlace, ProcessPlaces
from nodeagent.model.runtime import RuntimeState
from nodeagent.model.telemetry import NodeSample

T = TypeVar("T")


class Sources(NamedTuple):
    """The sources about containers."""

    kubelet: KubeletState
    """Has the holders of devices."""
    list_containers: Callable[[], Awaitable[tuple[PodContainer, ...]]] | None = None
    """Asks the container runtime; `None` where containers are simulated."""
    places: ProcessPlaces | None = None
    """Finds the container of a process; `None` where GPUs and processes are simulated."""
    open_pods: Callable[[], Awaitable[KubePodRequests]] | None = None
    """Opens the pods by the API server; `None` where no API server can be asked."""


class SourcePoller:
    """A helper of the component `fractions`."""

    def __init__(self, bus: Bus, clock: Clock, sources: Sources, list_finished: Callable[[], Collection[str]]) -> None:
        """`list_finished` has the uids of finished pods, by the API server."""
        self._bus, self._clock, self._sources, self.list_finished = bus, clock, sources, list_finished

    async def poll(self) -> FractionPoll:
        """Ask all sources; a failed source differs from an empty answer."""
        answers = await self.poll_kubelet()
        containers, silence = await self.ask_runtime(answers.listing)
        users, unread = await self._find_users()
        return answers._replace(containers=containers, users=users, unread=unread, silence=silence)

    async def poll_kubelet(self) -> FractionPoll:
        """Ask the kubelet only."""
        now, finished = self._clock.monotonic(), self.list_finished()
        listing = await ask_if_possible(self._sources.kubelet.read_pods)
        checkpoint = await ask_if_possible(self._sources.kubelet.read_checkpoint)
        return FractionPoll(listing, checkpoint, None, None, now, finished)

    async def ask_runtime(self, listing: PodListing | None) -> tuple[tuple[PodContainer, ...] | None, str]:
        """The containers of the kubelet's runtime; or `None`, and why the runtime does not list them."""
        if self._sources.list_containers is None:
            return (), ""
        try:
            containers = await self._sources.list_containers()
        except NodeagentError as error:
            return None, str(error)
        if listing is None or is_of_kubelet(containers, listing):
            return containers, ""
        runtime = self._bus.read(RuntimeState)
        at = runtime.socket if runtime is not None else ""
        return None, f"the runtime at {at} has no container of the kubelet's {len(listing.pods)} pods"

    async def read_processes(self) -> tuple[NodeSample, Mapping[int, ProcessPlace]] | None:
        """The newest sample, with the place of each process; `None` without a fresh sample or real processes."""
        sample = self._bus.read(NodeSample)
        if self._sources.places is None or sample is None or sample.is_old(self._clock.wall()):
            return None
        pids = [process.pid for gpu in sample.gpus for process in gpu.processes]
        return sample, await self._sources.places.read_places(pids)

    async def _find_users(self) -> tuple[Mapping[GpuUuid, frozenset[str]] | None, frozenset[GpuUuid]]:
        """By GPU the pods with processes on it, `None` without a fresh sample of the driver; and the unread GPUs."""
        if self._sources.places is None:
            return {}, frozenset()
        found = await self.read_processes()
        if found is None:
            return None, frozenset()
        sample, places = found
        users = {
            gpu.uuid: frozenset(places[each.pid].pod_uid for each in gpu.processes if each.pid in places)
            for gpu in sample.gpus
            if gpu.processes
        }
        return users, list_unread(sample)


async def ask_if_possible(ask: Callable[[], Awaitable[T]]) -> T | None:
    """The answer; `None` after a failure."""
    try:
        return await ask()
    except NodeagentError:
        return None
