"""Carries out the node requests of the cluster, as published on the bus.

Owns the pause in force, the named configuration in use, and the report on the requested MIG layout. Refuses to ask the
cluster: the component `cluster` reads the labels and passes reports on to people.
"""

import anyio
from anyio.abc import TaskStatus

from nodeagent.components.node_requests.decide import MigRequest, Pause, Step, decide_step, judge_mig_request
from nodeagent.config.live import LiveSettings
from nodeagent.config.named import LABEL
from nodeagent.core.channels.bus import Bus
from nodeagent.core.conditions import Conditions
from nodeagent.core.life.orders import OrderHandlers
from nodeagent.core.log.lines import get_logger
from nodeagent.core.values import Envelope
from nodeagent.model.cluster import MIG_CONFIG_LABEL, ClusterNode, NodeRequests
from nodeagent.model.driver import DriverState
from nodeagent.model.errors import NodeagentError
from nodeagent.model.events import NodeRequestRefused
from nodeagent.model.gpu import Inventory
from nodeagent.model.orders import RELEASE, RESUME, NoArguments, ReleaseCommand
from nodeagent.model.ports import ConfigurationControl

POLL_RETRY_SECONDS = 5.0


class NodeRequestHandler:
    """The component for node requests."""

    name = "wishes"

    def __init__(
        self,
        bus: Bus,
        conditions: Conditions,
        live: LiveSettings,
        orders: OrderHandlers,
        configurations: ConfigurationControl,
    ) -> None:
        self._bus, self._conditions, self._live = bus, conditions, live
        self._orders, self._configurations = orders, configurations
        self._pause = Pause()
        # Unknown until the first node request: the label in force at the start, and its problems.
        self._followed: str | None = None
        self._complained: str | None = None
        self._mig = MigRequest()
        self._log = get_logger(component=self.name)

    async def run(self, *, task_status: TaskStatus[None]) -> None:
        """Carry out each kind of node request by itself, without waiting for another kind."""
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(self._honour_pauses, name="wishes pauses")
            tasks.start_soon(self._honour_choices, name="wishes named configuration")
            tasks.start_soon(self._report_mig_requests, name="wishes MIG layout")
            task_status.started()

    async def _honour_pauses(self) -> None:
        with self._bus.watch(NodeRequests, client=f"{self.name} pauses") as requests:
            while True:
                await self._honour_pause(self._bus.latest(NodeRequests))
                with anyio.move_on_after(POLL_RETRY_SECONDS):
                    await anext(requests)

    async def _honour_pause(self, requests: Envelope[NodeRequests] | None) -> None:
        wanted = requests.value.pause if requests is not None else ""
        lasts, now = self._live.now.driver.release_seconds, anyio.current_time()
        step = decide_step(wanted, self._pause, now, lasts)
        try:
            if step is Step.RELEASE:
                await self._orders.give(RELEASE, ReleaseCommand(reason=wanted, seconds=lasts))
                self._pause = Pause(label=wanted, released_until=now + lasts)
            elif step is Step.RESUME:
                await self._orders.give(RESUME, NoArguments())
                self._pause = Pause()
        except NodeagentError as error:
            self._log.warning("pause_not_honoured", pause=wanted, reason=str(error))
            return
        self._conditions.show("node-paused", wanted, cause=requests)

    async def _honour_choices(self) -> None:
        # Any change of the node is a reason to retry a refused request.
        with self._bus.watch_all(NodeRequests, ClusterNode, client=f"{self.name} named configuration") as changes:
            async for requests, _ in changes:
                if requests is not None:
                    await self._honour_choice(requests.value.configuration, requests)

    async def _honour_choice(self, label: str, cause: Envelope[NodeRequests]) -> None:
        """Switch to the configuration named by the node's label; an unknown or invalid name changes nothing."""
        if self._live.now.device_plugin.config_dir is None:
            return
        try:
            if label != self._followed:
                done = await self._configurations.follow_label(label, cause=cause.seq)
                self._log.info("configuration_chosen", label=label, done=done)
                self._followed = label
            self._complain("", label, cause)
        except NodeagentError as error:
            self._complain(str(error), label, cause)

    def _complain(self, problem: str, label: str, cause: Envelope[NodeRequests]) -> None:
        """Report once why the label cannot be followed."""
        if problem == self._complained:
            return
        self._complained = problem
        self._conditions.show("named-configuration-unknown", problem, cause=cause)
        if problem:
            self._refuse(LABEL, label, problem, cause)

    async def _report_mig_requests(self) -> None:
        """Report on the requested MIG configuration, which other managers carry out."""
        with self._bus.watch_all(NodeRequests, Inventory, DriverState, client=f"{self.name} MIG layout") as changes:
            async for requests, inventory, driver in changes:
                # Where this agent cuts GPUs, the MIG component carries the request out and reports.
                if requests is None or self._live.now.mig.manage:
                    continue
                can_ask = inventory is not None and driver is not None and driver.value.ready
                gpus = inventory.value.gpus if inventory is not None and can_ask else None
                self._report_mig_request(judge_mig_request(requests.value, gpus, self._mig), requests)

    def _report_mig_request(self, request: MigRequest, cause: Envelope[NodeRequests]) -> None:
        if request == self._mig:
            return
        self._mig = request
        for code, details in request.conditions().items():
            self._conditions.replace(code, details)
        self._log.info("mig_wish_judged", config=request.config, standing=request.standing, detail=request.detail)
        if request.is_refused:
            self._refuse(MIG_CONFIG_LABEL, request.config, request.detail, cause)

    def _refuse(self, label: str, value: str, reason: str, cause: Envelope[NodeRequests]) -> None:
        self._bus.publish_fact(
            NodeRequestRefused(label=label, value=value, reason=reason), source=self.name, cause=cause
        )
