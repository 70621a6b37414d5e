"""Keeps the picture of the cluster true: lists once, then watches, and goes on where a lost watch ended.

Everything is listed anew only when the server no longer knows what happened since.

Owns when the picture may be trusted: from the first whole list of both kinds on, once what questions need is made.
While a watch is away the last picture stays in use, for what was promised stays promised; that it is away is told by
`silent_seconds`.
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
"""Short: while it lasts nothing is confirmed to other replicas, and going on costs the server next to nothing."""
_RELISTS = BackoffSettings(first_seconds=0.2, limit_seconds=60.0)
"""Longer: each time the server reads and sends the whole cluster."""
_PREPARED_TOGETHER = 32
"""Accounts that are made before others have their turn: a few milliseconds."""
_log = get_logger(component="extender")


class Picture:
    """Two watches and what they feed."""

    def __init__(
        self,
        cluster: Cluster,
        nodes: FleetWatch[SeenNode],
        pods: FleetWatch[SeenPod],
        rng: Random,
        read_clock: Callable[[], float],
        settle: Callable[[], None] = lambda: None,
    ) -> None:
        """`settle` is called once, when all is there that the first question needs."""
        self.cluster, self._nodes, self._pods = cluster, nodes, pods
        self._rng, self._read_clock = rng, read_clock
        self._listed: set[str] = set()
        self._lost: dict[str, float] = {}
        self._settle = settle
        self.is_ready = False
        """Whether everything was listed, and the account of each node made: no question waits for that."""
        self._changed = anyio.Event()
        self.relists = 0
        """How often a whole list was read."""

    @property
    def silent_seconds(self) -> float:
        """For how long one of the watches has been away; 0 while both are there."""
        return max((self._read_clock() - since for since in self._lost.values()), default=0.0)

    async def run(self) -> None:
        """Until cancelled."""
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(self._keep, self._nodes, _Nodes(self.cluster), name="nodes")
            tasks.start_soon(self._keep, self._pods, _Pods(self.cluster, self._read_clock), name="pods")
            tasks.start_soon(self._prepare, name="accounts")

    async def wait_ready(self) -> None:
        """Until the first question can be answered as fast as any other."""
        while not self.is_ready:
            await self._changed.wait()

    async def _prepare(self) -> None:
        """Make the account of each node once everything is listed; what changes meanwhile is little, and made anew."""
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
        """Until this pod is seen as it is since this version; by then all that was written before is seen too."""
        while (pod := self.cluster.pods.get(uid)) is None or number_of(pod.version) < number_of(version):
            await self._changed.wait()

    async def _keep(self, watch: FleetWatch[T], book: "_Book[T]") -> None:
        backoff, relists = Backoff(_BACKOFF, self._rng), Backoff(_RELISTS, self._rng)
        version = ""
        while True:
            # What counts is how long the watch ran: a list of a large cluster takes long, and succeeds all the same.
            began, recovers = self._read_clock(), backoff
            try:
                if not version:
                    version = await self._list(watch, book)
                    began = self._read_clock()
                async with aclosing(watch.watch(version, lambda: self._lost.pop(book.what, None))) as changes:
                    async for change in changes:
                        version = change.version
                        if change.found is not None:
                            (book.drop if change.kind == "gone" else book.note)(change.found)
                            self._tell()
            except ApiExpired:
                version, recovers = "", relists
                _log.info("watch_expired", what=book.what)
            except KubeError as error:
                self._lost.setdefault(book.what, self._read_clock())
                _log.warning("watch_lost", what=book.what, reason=str(error))
            await anyio.sleep(recovers.delay_after_failure(ran_seconds=self._read_clock() - began))

    async def _list(self, watch: FleetWatch[T], book: "_Book[T]") -> str:
        """Page by page, so that what matters of each is all that stays."""
        names: set[str] = set()
        version = ""
        async with aclosing(watch.list()) as pages:
            async for page in pages:
                version = page.version
                names.update(map(book.note, page.items))
        book.keep(names)
        self.relists += 1
        self._listed.add(book.what)
        self._tell()
        _log.info("listed", what=book.what, count=len(names))
        return version

    def _tell(self) -> None:
        self._changed.set()
        self._changed = anyio.Event()


class _Book(Protocol[C_contra]):
    """One kind of object in the index."""

    what: str

    def note(self, found: C_contra) -> str:
        """It is there, or has changed; what it is known by."""

    def drop(self, found: C_contra) -> None:
        """It is gone."""

    def keep(self, names: Collection[str]) -> None:
        """After a list: the others are gone."""


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
        # One that has finished is told as gone too, by what it was before: only who is deleted by force says so.
        self._cluster.drop_pod(found.uid, self._read_clock() if found.is_forced else None)

    def keep(self, names: Collection[str]) -> None:
        self._cluster.keep_pods(names, self._read_clock())
