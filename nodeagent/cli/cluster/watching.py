"""The cluster's agents and nodes, kept current by lists in pages and watches, and the readiness decided from both.

Owns the few kept fields of each object, so that ten thousand nodes take some megabytes. A change of other fields, such
as a heartbeat, wakes nobody.
"""

from collections.abc import Callable
from contextlib import aclosing
from random import Random
from typing import Final, Generic, NamedTuple, TypeVar

import anyio

from nodeagent.core.life.backoff import Backoff, BackoffSettings
from nodeagent.edge.kube.errors import ApiExpired, KubeError
from nodeagent.edge.kube.fleet import FleetWatch
from nodeagent.edge.kube.readiness.cluster import ClusterApi
from nodeagent.model.readiness import AgentDaemonSet, AgentPod, ClusterCondition, FleetNode, Readiness
from nodeagent.rules.cluster_readiness import decide_readiness

T = TypeVar("T")
GATHER_SECONDS: Final = 1.0
"""From a change to the next decision, so that a thousand changes at once are one decision."""
_BACKOFF: Final = BackoffSettings(first_seconds=0.5, limit_seconds=30.0)


class Judged(NamedTuple):
    """A DaemonSet with the readiness of its agents and nodes."""

    daemon_set: AgentDaemonSet
    readiness: Readiness


class _Kept(Generic[T]):
    """The objects of one kind by key, and the version for the next watch."""

    def __init__(self, watch: FleetWatch[T], read_key: Callable[[T], str], is_older: Callable[[T, T], bool]) -> None:
        """`is_older` compares a reported object with a kept object."""
        self.watch, self._read_key, self._is_older = watch, read_key, is_older
        self.items: dict[str, T] = {}
        self.version = ""

    async def read(self) -> None:
        """Read all objects, page by page; unlisted objects are gone."""
        found: dict[str, T] = {}
        version = ""
        async with aclosing(self.watch.list()) as pages:
            async for page in pages:
                found |= {self._read_key(item): item for item in page.items}
                version = page.version
        self.items, self.version = found, version

    def note(self, item: T) -> bool:
        """Keep an object; returns whether a kept field has changed."""
        key = self._read_key(item)
        before = self.items.get(key)
        if before == item or (before is not None and self._is_older(item, before)):
            return False
        self.items[key] = item
        return True

    def drop(self, item: T) -> bool:
        return self.items.pop(self._read_key(item), None) is not None


class WatchedCluster:
    """The agents' DaemonSets and pods, and all nodes."""

    def __init__(self, api: ClusterApi, rng: Random, on_trouble: Callable[[KubeError], object]) -> None:
        """`on_trouble` hears of each failed list and watch, which is tried again."""
        self._api, self._rng, self._on_trouble = api, rng, on_trouble
        self._daemon_sets = _Kept(
            api.daemon_sets, lambda each: each.uid, lambda reported, kept: reported.version < kept.version
        )
        self._pods: _Kept[AgentPod] = _Kept(api.pods, lambda each: each.uid, _is_never_older)
        self._nodes: _Kept[FleetNode] = _Kept(api.nodes, lambda each: each.name, _is_never_older)
        self.changed = anyio.Event()
        """Set with the next change, and then replaced."""

    @property
    def is_listed(self) -> bool:
        """Whether every kind was listed once."""
        return all(kept.version for kept in (self._daemon_sets, self._pods, self._nodes))

    async def read(self) -> None:
        """Read everything once.

        Raises:
            KubeError: a list failed.
        """
        # Nodes last: a pod without its node would be reported as such.
        await self._daemon_sets.read()
        await self._pods.read()
        await self._nodes.read()

    async def follow(self) -> None:
        """Keep everything current until cancelled."""
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(self._keep, self._daemon_sets, name="DaemonSets")
            tasks.start_soon(self._keep, self._pods, name="pods")
            tasks.start_soon(self._keep, self._nodes, name="nodes")

    async def wait_change(self, changed: anyio.Event) -> None:
        """Return some moments after the event, which was taken from `changed` before the last decision."""
        await changed.wait()
        await anyio.sleep(GATHER_SECONDS)

    def decide(self, *, expects_conditions: bool) -> list[Judged]:
        """The readiness of each DaemonSet."""
        return [
            Judged(
                each,
                decide_readiness(
                    each, self._pods.items.values(), self._nodes.items, expects_conditions=expects_conditions
                ),
            )
            for each in sorted(self._daemon_sets.items.values(), key=lambda one: (one.namespace, one.name))
        ]

    async def write_condition(self, daemon_set: AgentDaemonSet, condition: ClusterCondition) -> None:
        """Set the condition of a DaemonSet, which is kept as written before any watch reports the write.

        Raises:
            KubeError: the write failed.
        """
        self._daemon_sets.note(await self._api.write_condition(daemon_set, condition))

    async def _keep(self, kept: _Kept[T]) -> None:
        backoff = Backoff(_BACKOFF, self._rng)
        while True:
            began = anyio.current_time()
            try:
                if not kept.version:
                    await kept.read()
                    self._wake()
                    began = anyio.current_time()
                async with aclosing(kept.watch.watch(kept.version)) as changes:
                    async for change in changes:
                        kept.version = change.version
                        if change.found is None:
                            continue
                        if kept.drop(change.found) if change.kind == "gone" else kept.note(change.found):
                            self._wake()
            except ApiExpired:
                kept.version = ""
            except KubeError as error:
                self._on_trouble(error)
            await anyio.sleep(backoff.delay_after_failure(ran_seconds=anyio.current_time() - began))

    def _wake(self) -> None:
        self.changed.set()
        self.changed = anyio.Event()


def _is_never_older(_reported: object, _kept: object) -> bool:
    return False
