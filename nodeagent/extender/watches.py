"""Keeps the index of the cluster current: lists once, then watches, and continues where a lost watch ended.

Lists all objects anew only when the server no longer knows the changes since. Owns the moment of readiness: after the
first whole list of both kinds, once the accounts are made. While a watch is away the last index stays in use, as
promises stay promised; `silent_seconds` reports the absence.
"""

from collections.abc import Callable, Collection
from contextlib import aclosing
from random import Random
from typing import Protocol, TypeVar

import anyio
import anyio.lowlevel

from nodeagent.core.life.backoff import Backoff, BackoffSettings
from nodeagent.core.log.lines import get_logger
from nodeagent.edge.kube.errors import ApiExpired, KubeError
from nodeagent.edge.kube.fleet import FleetWatch
from nodeagent.extender.cluster import Cluster, number_of
from nodeagent.model.scheduling import SeenNode, SeenPod

T = TypeVar("T")
C_contra = TypeVar("C_contra", contravariant=True)
_BACKOFF = BackoffSettings(first_seconds=0.2, limit_seconds=5.0)
"""Short: during the wait no choice can be confirmed, and a continued watch costs the server next to nothing."""
_RELISTS = BackoffSettings(first_seconds=0.2, limit_seconds=60.0)
"""Longer: each time the server reads and sends the whole cluster."""
_PREPARED_TOGETHER = 32
"""Accounts made before other tasks run: a few milliseconds."""
_log = get_logger(component="extender")


class ClusterWatches:
    """The two watches and the index that they feed."""

    def __init__(
        self,
        cluster: Cluster,
        nodes: FleetWatch[SeenNode],
        pods: FleetWatch[SeenPod],
        rng: Random,
        read_clock: Callable[[], float],
        settle: Callable[[], None] = lambda: None,
    ) -> None:
        """`settle` is called once, when everything for the first question is there."""
        self.cluster, self._nodes, self._pods = cluster, nodes, pods
        self._rng, self._read_clock = rng, read_clock
        self._listed: set[str] = set()
        self._lost: dict[str, float] = {}
        self._settle = settle
        self.is_ready = False
        """Whether everything was listed and the account of each node made, so that no question waits for either."""
        self._changed = anyio.Event()
        self.relists = 0
        """How often a whole list was read."""

    @property
    def silent_seconds(self) -> float:
        """For how long a watch has been away; 0 while both are there."""
        return max((self._read_clock() - since for since in self._lost.values()), default=0.0)

    async def run(self) -> None:
        """Watch until cancelled."""
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(self._keep, self._nodes, _Nodes(self.cluster), name="nodes")
            tasks.start_soon(self._keep, self._pods, _Pods(self.cluster, self._read_clock), name="pods")
            tasks.start_soon(self._prepare, name="accounts")

    async def wait_ready(self) -> None:
        """Wait until the first question can be answered as fast as any other."""
        while not self.is_ready:
            await self._changed.wait()

    async def _prepare(self) -> None:
        """Make the account of each node once everything is listed; the few changes meanwhile are made anew."""
        while self._listed != {"nodes", "pods"}:
            await self._changed.wait()
        for _ in range(2):
            names = list(self.cluster.nodes)
            for start in range(0, len(names), _PREPARED_TOGETHER):
                self.cluster.prepare(names[start : start + _PREPARED_TOGETHER])
                await anyio.lowlevel.checkpoint()
        self._settle()
        self.is_ready = True
        self._tell()

    async def wait_seen(self, uid: str, version: str) -> None:
        """Wait until the pod is seen at this version or later; all earlier writes are seen by then too."""
        while (pod := self.cluster.pods.get(uid)) is None or number_of(pod.version) < number_of(version):
            await self._changed.wait()

    async def _keep(self, watch: FleetWatch[T], index: "_ObjectIndex[T]") -> None:
        backoff, relists = Backoff(_BACKOFF, self._rng), Backoff(_RELISTS, self._rng)
        version = ""
        while True:
            # The backoff counts how long the watch ran: a list of a large cluster takes long, and still succeeds.
            began, recovers = self._read_clock(), backoff
            try:
                if not version:
                    version = await self._list(watch, index)
                    began = self._read_clock()
                async with aclosing(watch.watch(version, lambda: self._lost.pop(index.what, None))) as changes:
                    async for change in changes:
                        version = change.version
                        if change.found is not None:
                            (index.drop if change.kind == "gone" else index.note)(change.found)
                            self._tell()
            except ApiExpired:
                version, recovers = "", relists
                _log.info("watch_expired", what=index.what)
            except KubeError as error:
                self._lost.setdefault(index.what, self._read_clock())
                _log.warning("watch_lost", what=index.what, reason=str(error))
            await anyio.sleep(recovers.delay_after_failure(ran_seconds=self._read_clock() - began))

    async def _list(self, watch: FleetWatch[T], index: "_ObjectIndex[T]") -> str:
        """List page by page, so that only the indexed facts of each object stay."""
        names: set[str] = set()
        version = ""
        async with aclosing(watch.list()) as pages:
            async for page in pages:
                version = page.version
                names.update(map(index.note, page.items))
        index.keep(names)
        self.relists += 1
        self._listed.add(index.what)
        self._tell()
        _log.info("listed", what=index.what, count=len(names))
        return version

    def _tell(self) -> None:
        self._changed.set()
        self._changed = anyio.Event()


class _ObjectIndex(Protocol[C_contra]):
    """The index of one kind of object."""

    what: str

    def note(self, found: C_contra) -> str:
        """Note a new or changed object; its key."""

    def drop(self, found: C_contra) -> None:
        """The object is gone."""

    def keep(self, names: Collection[str]) -> None:
        """After a list: objects off the list are gone."""


class _Nodes:
    def __init__(self, cluster: Cluster) -> None:
        self.what, self._cluster = "nodes", cluster

    def note(self, found: SeenNode) -> str:
        self._cluster.note_node(found)
        return found.name

    def drop(self, found: SeenNode) -> None:
        self._cluster.drop_node(found.name)

    def keep(self, names: Collection[str]) -> None:
        self._cluster.keep_nodes(names)


class _Pods:
    def __init__(self, cluster: Cluster, read_clock: Callable[[], float]) -> None:
        self.what, self._cluster, self._read_clock = "pods", cluster, read_clock

    def note(self, found: SeenPod) -> str:
        self._cluster.note_pod(found, self._read_clock())
        return found.uid

    def drop(self, found: SeenPod) -> None:
        # The watch reports a finished pod as gone too, in its earlier state: only a pod deleted by force says so.
        self._cluster.drop_pod(found.uid, self._read_clock() if found.is_forced else None)

    def keep(self, names: Collection[str]) -> None:
        self._cluster.keep_pods(names, self._read_clock())
