"""Pauses programs with the driver open and restores the programs: DaemonSets by labels, and services of the host.

Owns the order: a pause is durable before a label or service is touched, and forgotten after the return.
Refuses to stop a service that does not run: such a service would be started afterwards.
"""

from collections.abc import Awaitable, Callable, Sequence
from typing import Protocol

from msgspec.structs import replace

from nodeagent.core.log.lines import get_logger
from nodeagent.edge.host.driver.module_loader import HostServices
from nodeagent.model.errors import NodeagentError
from nodeagent.model.ports import ClientPausing
from nodeagent.model.upgrades import PutAside
from nodeagent.rules.paused_clients import UPGRADE_PAUSE

Keep = Callable[[PutAside], Awaitable[None]]
"""Makes durable what is put aside."""
_WHY = "for an upgrade of the driver"


class UpgradeCluster(ClientPausing, Protocol):
    """The node's labels, and the pods that bring a driver."""

    async def list_driver_pods(self) -> tuple[str, ...]:
        """The node's pods that bring the driver, as `namespace/name`."""
        ...

    async def send_away(self, pod: str) -> str:
        """Ask a pod to leave; the obstacle, if any."""
        ...


class PuttingAside:
    """Puts aside for one upgrade at a time; `keep` is the component's own."""

    def __init__(self, cluster: UpgradeCluster | None, services: HostServices, keep: Keep) -> None:
        """`cluster` is `None` without an API server."""
        self._cluster, self._services, self._keep = cluster, services, keep
        self._looked: frozenset[str] = frozenset()
        """Services that were looked at in this life of the agent."""
        self._log = get_logger(component="upgrades")

    async def put(self, aside: PutAside) -> tuple[str, ...]:
        """Pause all programs, as far as possible now; returns the programs still there."""
        try:
            aside = await self._pause(aside)
            left = await self._list_left(aside)
        except NodeagentError as error:
            return (str(error),)
        return (*left, *await self._stop(aside))

    async def _pause(self, aside: PutAside) -> PutAside:
        if self._cluster is None:
            return aside
        found = UPGRADE_PAUSE.plan(await self._cluster.read_labels())
        if found:
            aside = replace(aside, labels={**aside.labels, **found})
            await self._keep(aside)
            for key in found:
                await self._cluster.write_label(key, UPGRADE_PAUSE.value)
        return aside

    async def _list_left(self, aside: PutAside) -> tuple[str, ...]:
        applications = UPGRADE_PAUSE.list_applications(aside.labels)
        return await self._cluster.list_pods(applications) if self._cluster is not None and applications else ()

    async def _stop(self, aside: PutAside) -> tuple[str, ...]:
        services = self._services.read_names()
        running = [one for one in services if one not in self._looked and await self._services.is_running(one)]
        new = tuple(one for one in running if one not in aside.services)
        if new:
            aside = replace(aside, services=(*aside.services, *new))
            await self._keep(aside)
        problems = [await self._services.change(one, "stop", _WHY) for one in running]
        self._looked |= frozenset(services) if not any(problems) else frozenset()
        return tuple(filter(None, problems))

    async def start(self, aside: PutAside) -> tuple[PutAside, str]:
        """Start the stopped services again; the pauses left, and the obstacle, if any."""
        self._looked = frozenset()
        problems = dict[str, str]()
        for service in aside.services:
            if problem := await self._services.change(service, "start", _WHY):
                problems[service] = problem
        if len(problems) < len(aside.services):
            aside = replace(aside, services=tuple(problems))
            await self._keep(aside)
        return aside, "; ".join(problems.values())

    async def give_back(self, aside: PutAside) -> str:
        """Restore the paused labels, as far as possible now; the obstacle, if any."""
        if not aside.labels:
            return ""
        if self._cluster is None:
            return f"without an API server the labels {', '.join(sorted(aside.labels))} stay paused"
        try:
            labels = await self._cluster.read_labels()
            owed = UPGRADE_PAUSE.list_paused(aside.labels, labels)
            for key, value in UPGRADE_PAUSE.list_returns(owed, labels).items():
                await self._cluster.write_label(key, value)
                del owed[key]
        except NodeagentError as error:
            return str(error)
        await self._keep(replace(aside, labels=owed))
        return f"{', '.join(sorted(owed))} is paused for another reason too" if owed else ""

    async def find_driver_pods(self) -> tuple[str, ...]:
        """The pods that have brought the driver.

        Raises:
            NodeagentError: no answer, or a refusal.
        """
        return await self._cluster.list_driver_pods() if self._cluster is not None else ()

    async def send_away(self, pods: Sequence[str]) -> str:
        """Have the pods with the old driver leave; the obstacles, if any."""
        assert self._cluster is not None
        problems = [await self._cluster.send_away(pod) for pod in pods]
        self._log.info("driver_pods_sent_away", pods=pods, problems=problems)
        return "; ".join(filter(None, problems))
