"""The chores of the leading replica: hold the Lease, and take unbound choices off pods.

Owns the lease turns of each replica. Every replica answers every question; the leader only does chores, so that a
cluster without a leader for a while lacks nothing else.
"""

from collections.abc import Callable
from contextlib import suppress
from typing import Final, Protocol

import anyio

from nodeagent.core.log.lines import get_logger
from nodeagent.edge.kube.errors import ApiConflict, ApiNotFound, KubeError
from nodeagent.edge.kube.fleet import PodAnnotations
from nodeagent.extender.cluster import Cluster
from nodeagent.extender.election import Watched, decide_turn, watch_lease
from nodeagent.extender.gpu_pod import GpuPod
from nodeagent.model.scheduling import SeenLease, SeenPod

TURNS: Final = 5
"""How often the lease is read during its duration."""
SWEEP_SECONDS: Final = 30.0
_log = get_logger(component="extender")


class LeaseApi(Protocol):
    """The Lease shared by the replicas."""

    async def read(self) -> SeenLease | None:
        """The Lease as stored."""

    async def write(self, before: SeenLease | None, holder: str, seconds: float) -> SeenLease:
        """Store the Lease with a holder."""


class Replica:
    """A replica among several; or the only replica, leading without a Lease."""

    def __init__(
        self,
        lease: LeaseApi | None,
        me: str,
        seconds: float,
        cluster: Cluster,
        annotations: PodAnnotations,
        read_clock: Callable[[], float],
    ) -> None:
        self._lease, self._me, self._seconds = lease, me, seconds
        self._cluster, self._annotations, self._read_clock = cluster, annotations, read_clock
        self._watched = Watched()
        self.leads = lease is None

    async def run(self) -> None:
        """Take turns until cancelled; then give the lease up, so that another replica need not wait for its end."""
        try:
            async with anyio.create_task_group() as tasks:
                tasks.start_soon(self._repeat_sweep, name="sweep")
                while self._lease is not None:
                    await self.take_turn(self._lease)
                    await anyio.sleep(self._seconds / TURNS)
        finally:
            with anyio.move_on_after(1, shield=True):
                await self._give_up()

    async def take_turn(self, lease: LeaseApi) -> None:
        """Read the lease once, and take or keep it on this replica's turn."""
        try:
            self._watched = watch_lease(self._watched, await lease.read(), self._read_clock())
            turn = decide_turn(self._watched, self._me, self._read_clock())
            if turn.write:
                now = self._read_clock()
                written = await lease.write(self._watched.lease, self._me, self._seconds)
                self._watched = watch_lease(self._watched, written, now)
                self._lead(is_ours=True)
            else:
                self._lead(is_ours=False)
        except ApiConflict:
            self._lead(is_ours=False)  # another was first
        except KubeError as error:
            # Until the lease is over no other replica can have taken it.
            lease_is_ours = decide_turn(self._watched, self._me, self._read_clock()).leads
            self._lead(is_ours=lease_is_ours)
            _log.warning("lease_not_renewed", reason=str(error), leads=self.leads)

    async def sweep(self) -> int:
        """Take choices off pods that were not bound in time; how many."""
        self._cluster.expire(self._read_clock())
        swept = 0
        for pod in list_void(self._cluster):
            seen = SeenPod(namespace=pod.namespace, name=pod.name, uid=pod.uid)
            # A pod that changed meanwhile, or is gone, needs no sweeping.
            with suppress(ApiConflict, ApiNotFound):
                await self._annotations.write(seen, dict.fromkeys(pod.choice), at_version=pod.version)
                swept += 1
        return swept

    async def _repeat_sweep(self) -> None:
        while True:
            await anyio.sleep(SWEEP_SECONDS)
            if not self.leads:
                continue
            try:
                swept = await self.sweep()
            except KubeError as error:
                _log.warning("choices_not_swept", reason=str(error))
                continue
            if swept:
                _log.info("choices_swept", count=swept)

    def _lead(self, *, is_ours: bool) -> None:
        if is_ours != self.leads:
            self.leads = is_ours
            _log.info("leading_changed", leads=is_ours, replica=self._me)

    async def _give_up(self) -> None:
        lease = self._watched.lease
        if self._lease is None or lease is None or lease.holder != self._me or not self.leads:
            return
        with suppress(KubeError):  # it ends by itself
            await self._lease.write(lease, "", self._seconds)


def list_void(cluster: Cluster) -> list[GpuPod]:
    """Pods with a choice that counts no more: unbound for too long.

    A choice made by no extender is left alone: another scheduler may be about to bind the pod.
    """
    return [
        pod
        for pod in cluster.pods.values()
        if pod.choice and not pod.node and pod.uid not in cluster.holds and pod.uid not in cluster.suspects
    ]
