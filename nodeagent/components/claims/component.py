"""Prepares claims for pods when the kubelet asks, and unprepares claims after the last pod.

Owns the answers to the kubelet, and everything made for a claim and removed with the claim.
Refuses to answer before the journal holds the claim, and to need the API server for prepared claims.
"""

from collections import Counter
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager, suppress

import anyio
from anyio.abc import TaskStatus

from nodeagent.components.claims.answer_task import Answers
from nodeagent.components.claims.make import ClaimDependencies, Makers, make_ready, put_away
from nodeagent.components.claims.metadata import wants_metadata
from nodeagent.components.claims.prepare import (
    NodeView,
    answer_claim,
    check_claim,
    check_reference,
    is_late,
    list_capacities,
    plan_claim,
    plan_health,
)
from nodeagent.components.claims.reconcile import POLL_INTERVAL_SECONDS, Doubts, explain_end, list_doubtful, refer_to
from nodeagent.components.claims.sharing import list_time_slices
from nodeagent.config.live import LiveSettings
from nodeagent.core.channels.bus import Bus
from nodeagent.core.channels.gathered import Gathered
from nodeagent.core.clock import Clock
from nodeagent.core.conditions import Conditions
from nodeagent.core.life.ticker import Ticker
from nodeagent.core.log.lines import get_logger
from nodeagent.model.claims import (
    ClaimReference,
    ClaimStanding,
    DeviceAnswer,
    DeviceHealth,
    ReadyClaims,
    ResourceClaim,
)
from nodeagent.model.cluster import ClusterNode
from nodeagent.model.driver import DriverState
from nodeagent.model.errors import ClaimRefused, NodeagentError
from nodeagent.model.events import CdiSpecsWritten, ClaimPrepared, ClaimUnprepared
from nodeagent.model.gpu import Inventory
from nodeagent.model.health import HealthReport
from nodeagent.model.journal import PreparedClaim
from nodeagent.model.offering import AllocationMode, Offering
from nodeagent.model.ports import ClaimApi
from nodeagent.model.runtime import CdiState
from nodeagent.rules.claims.naming import list_devices

PATIENCE_SECONDS = 20.0
"""How long a claim waits for facts that a just started agent does not know yet."""
NODE_PATIENCE_SECONDS = 5.0
"""How long the first claims wait for the node object, whose kubelet's version decides about metadata files."""
HEALTH_WINDOW_SECONDS = 0.05
RETRY_SECONDS = 2.0
PASSING_MAX = 512
"""How many claims are remembered that were unprepared without ever having been prepared.

Not over a restart: a late Prepare was on its way already, and ends with the agent that got the call. A claim prepared
anew all the same keeps its devices from others, and is unprepared when no container is found to have it.
"""


class Claims:
    """The component; implements the port `ClaimDriver`."""

    name = "claims"

    def __init__(
        self,
        bus: Bus,
        conditions: Conditions,
        clock: Clock,
        live: LiveSettings,
        dependencies: ClaimDependencies,
        makers: Makers,
        *,
        pool: str,
    ) -> None:
        self._bus, self._conditions, self._clock, self._live = bus, conditions, clock, live
        self._dependencies, self._makers, self._pool = dependencies, makers, pool
        self._api: ClaimApi | None = None
        self._health: Gathered[tuple[DeviceHealth, ...]] = Gathered(())
        self._is_known, self._is_described, self._has_node = anyio.Event(), anyio.Event(), anyio.Event()
        self._undescribed, self._unanswered = set[str](), set[str]()
        self._locks: dict[str, anyio.Lock] = {}
        self._users = Counter[str]()
        self._passing: dict[str, None] = {}
        self._without_metadata: dict[str, str] = {}
        self._doubts = Doubts()
        self._log = get_logger(component=self.name)
        self._answers = Answers(bus, conditions, self.name)

    async def run(self, *, task_status: TaskStatus[None]) -> None:
        """Answer the kubelet until cancelled; ready when calls can arrive."""
        self._conditions.replace("claim-refused", {})
        self._conditions.replace("claim-metadata-not-written", {})
        missing = "" if self._dependencies.open_api else "there are no credentials, or `kubernetes.enabled` is false"
        self._conditions.show("claims-without-api", missing)
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(self._watch_states, name="claims states")
            tasks.start_soon(self._watch_files, name="claims files")
            tasks.start_soon(self._reconcile_forever, name="claims reconciled")
            if self._dependencies.open_api is not None:
                tasks.start_soon(self._meet_api, name="claims API")
            while True:
                try:
                    await self._dependencies.serve(self, self._note_standing, task_status.started)
                except NodeagentError as error:
                    self._note_standing(
                        ClaimStanding(
                            driver=self._live.now.claims.driver, socket="", registered=False, last_error=str(error)
                        )
                    )
                    await anyio.sleep(RETRY_SECONDS)

    # The kubelet's calls.

    async def prepare(self, claims: Sequence[ClaimReference]) -> Mapping[str, tuple[DeviceAnswer, ...] | str]:
        """Prepare claims; the port's contract is in `model.ports`."""
        return await self._answers.answer_all(claims, self._prepare, "", "it is not ready after")

    async def unprepare(self, claims: Sequence[ClaimReference]) -> Mapping[str, str]:
        """Unprepare claims; the port's contract is in `model.ports`."""
        return await self._put_all_away(dict.fromkeys(claims, "its last pod on this node has ended"))

    async def _put_all_away(self, ended: Mapping[ClaimReference, str]) -> Mapping[str, str]:
        """Unprepare claims; by uid the obstacle of each, empty after success."""

        async def put_one_away(reference: ClaimReference) -> str:
            await self._unprepare(reference.uid, ended[reference])
            return ""

        return await self._answers.answer_all(ended, put_one_away, "cannot be put away: ", "cannot be put away within")

    async def wait_health(self, known: tuple[DeviceHealth, ...] | None) -> tuple[DeviceHealth, ...]:
        """The health of devices; the port's contract is in `model.ports`."""
        return await self._health.wait_other(known, HEALTH_WINDOW_SECONDS)

    async def _prepare(self, reference: ClaimReference) -> tuple[DeviceAnswer, ...]:
        check_reference(reference)
        async with self._alone_with(reference.uid):
            claim = self._find_ready_claims().claims.get(reference.uid)
            is_new = claim is None or not claim.is_ready or claim.uid in self._unanswered
            if claim is None:
                claim = await self._begin(reference)
            if not self._is_described.is_set():
                with anyio.move_on_after(PATIENCE_SECONDS):
                    await self._is_described.wait()
            ready = await self._make_ready(claim, await self._find_inventory())
            if is_new:
                self._unanswered.discard(ready.uid)
                devices = tuple(device.device for device in ready.devices)
                fact = ClaimPrepared(uid=ready.uid, claim=ready.describe(), devices=devices, pods=ready.pods)
                self._bus.publish_fact(fact, source=self.name)
                self._log.info("claim_prepared", claim=ready.describe(), uid=ready.uid, devices=list(devices))
            return answer_claim(ready)

    async def _make_ready(self, claim: PreparedClaim, inventory: Inventory) -> PreparedClaim:
        driver = self._bus.read(DriverState)
        ready = await make_ready(claim, self._makers, self._dependencies.keeper, inventory, driver)
        self._show_metadata()
        return ready

    async def _begin(self, reference: ClaimReference) -> PreparedClaim:
        """Plan the devices of a claim, and record the plan durably."""
        api = await self._find_api()
        found = check_claim(reference, await self._ask(api, reference))
        if is_late(found, self._dependencies.keeper.ended_claim(found.uid)) or found.uid in self._passing:
            await self._refuse_ended(api, found)
        view = await self._look()
        claim = plan_claim(found, view, self._clock.wall())
        await self._dependencies.keeper.prepare_claim(claim, list_capacities(view.inventory))
        self._passing.pop(claim.uid, None)
        self._unanswered.add(claim.uid)
        return claim

    async def _ask(self, api: ClaimApi, reference: ClaimReference) -> ResourceClaim | None:
        try:
            return await api.find_claim(reference.namespace, reference.name)
        except NodeagentError as error:
            raise ClaimRefused(f"claim {reference.describe()} must be read before it is prepared: {error}") from error

    async def _refuse_ended(self, api: ClaimApi, claim: ResourceClaim) -> None:
        """Refuse a late claim: all pods with a right to the claim have ended."""
        for pod in claim.pods:
            if await api.is_alive(pod):
                return
        raise ClaimRefused(
            f"claim {claim.namespace}/{claim.name} was put away after its last pod, and none that it is reserved for is"
            " alive"
        )

    async def _unprepare(self, uid: str, why: str) -> None:
        """Needs no API server, no driver and no GPU: the journal says what was made for the claim."""
        async with self._alone_with(uid):
            claim = self._find_ready_claims().claims.get(uid)
            if claim is None:
                self._passing[uid] = None
                while len(self._passing) > PASSING_MAX:
                    del self._passing[next(iter(self._passing))]
                return
            if next(list_time_slices(claim), None) is not None:
                # A time slice outlives the agent, and is given back only on GPUs that are known.
                with suppress(ClaimRefused):
                    await self._find_inventory()
            await put_away(claim, self._makers, self._dependencies.keeper, self._bus.read(Inventory), why)
            self._unanswered.discard(uid)
        self._show_metadata()
        self._bus.publish_fact(ClaimUnprepared(uid=uid, claim=claim.describe(), reason=why), source=self.name)
        self._log.info("claim_unprepared", claim=claim.describe(), uid=uid, reason=why)

    # Work in the background.

    async def _reconcile_forever(self) -> None:
        """Unprepare claims without holders, and remove specifications without a claim."""
        async for _ in Ticker(POLL_INTERVAL_SECONDS):
            try:
                await self._describe(tuple(self._undescribed))
                await self._reconcile()
            except NodeagentError as error:
                self._log.debug("claims_not_reconciled", error=str(error))

    async def _reconcile(self) -> None:
        ready = self._find_ready_claims()
        await self._makers.metadata.keep_metadata(lambda: self._find_ready_claims().claims)
        self._show_metadata()
        await self._makers.specs().keep_claims(ready.claims)
        if not ready.claims or self._dependencies.open_api is None:
            return
        listing = await self._dependencies.read_pods()
        doubtful = list_doubtful(ready.claims.values(), listing.claimed, self._live.now.claims.driver)
        asked = self._doubts.begin(doubtful)
        api = await self._find_api() if asked else None
        ends: dict[str, str] = {}
        for claim in asked:
            assert api is not None
            ends[claim.uid] = explain_end(claim, await api.find_claim(claim.namespace, claim.name))
        over = self._doubts.judge(ends)
        # A failed claim holds up no other claim, and is reported: the kubelet does not ask about it any more.
        await self._put_all_away({refer_to(claim): over[claim.uid] for claim in asked if claim.uid in over})

    async def _watch_files(self) -> None:
        """Write specifications anew at the start, and after the node's own were written: a reboot wipes them all."""
        with self._bus.listen(CdiSpecsWritten, client=self.name) as written:
            await self._write_all()
            async for _ in written:
                await self._write_all()

    async def _write_all(self) -> None:
        await self._is_known.wait()
        await self._is_described.wait()
        ready = self._dependencies.keeper.ready_claims()
        await self._describe(tuple(ready.claims) if ready is not None else ())

    async def _describe(self, uids: Sequence[str]) -> None:
        """Write the specifications of prepared claims again; retried where a GPU or daemon is missing."""
        for uid in uids:
            inventory = await self._find_inventory()
            self._undescribed.discard(uid)
            try:
                async with self._alone_with(uid):
                    claim = self._find_ready_claims().claims.get(uid)
                    if claim is not None and claim.is_ready:
                        await self._make_ready(claim, inventory)
            except NodeagentError as error:
                self._undescribed.add(uid)
                self._log.warning("claim_not_described", uid=uid, error=str(error))

    async def _watch_states(self) -> None:
        with self._bus.watch_all(Inventory, HealthReport, Offering, CdiState, ClusterNode, client=self.name) as states:
            async for _ in states:
                self._refresh()

    def _refresh(self) -> None:
        inventory, offering = self._bus.read(Inventory), self._bus.read(Offering)
        if self._bus.latest(CdiState) is not None:
            self._is_described.set()
        if self._bus.latest(ClusterNode) is not None:
            self._has_node.set()
        if inventory is None or offering is None:
            return
        self._is_known.set()
        health, settings = self._bus.read(HealthReport), self._live.now.claims
        behind = offering.list_behind(AllocationMode.CLAIMS)
        devices = list_devices(inventory, behind, on_demand=settings.mig_on_demand)
        self._health.put(plan_health(devices, health, self._pool))

    # Views of the node.

    async def _look(self) -> NodeView:
        inventory = await self._find_inventory()
        offering = self._bus.read(Offering)
        assert offering is not None
        has_metadata = await self._decide_metadata()
        settings, powers = self._live.now.claims, self._makers.powers
        return NodeView(inventory, offering, settings.driver, self._pool, powers, has_metadata)

    async def _decide_metadata(self) -> bool:
        choice = self._live.now.claims.metadata_files
        if choice == "auto" and not self._has_node.is_set():
            with anyio.move_on_after(NODE_PATIENCE_SECONDS):
                await self._has_node.wait()
            # Without a node object by now, later claims wait no more.
            self._has_node.set()
        return wants_metadata(choice, self._bus.read(ClusterNode))

    async def _find_inventory(self) -> Inventory:
        if not self._is_known.is_set():
            # Waiting costs a turn of the event loop, in which other tasks would come first.
            with anyio.move_on_after(PATIENCE_SECONDS):
                await self._is_known.wait()
        inventory = self._bus.read(Inventory)
        if inventory is None or not self._is_known.is_set():
            raise ClaimRefused("the GPUs of this node are not known yet: see `nodeagent status`")
        return inventory

    def _find_ready_claims(self) -> ReadyClaims:
        ready = self._dependencies.keeper.ready_claims()
        if ready is None:
            raise ClaimRefused("the journal of what is given out has not been read yet: see `nodeagent status`")
        return ready

    async def _meet_api(self) -> None:
        """Load the client and learn the API's version before the first pod waits for both."""
        try:
            await (await self._find_api()).learn_version()
        except NodeagentError as error:
            # The first claim asks again, and its refusal tells the obstacle.
            self._log.debug("claims_version_not_learned", error=str(error))

    async def _find_api(self) -> ClaimApi:
        if self._dependencies.open_api is None:
            raise ClaimRefused("claims are read from the API server, and this agent has no way to it")
        if self._api is None:
            self._api = await self._dependencies.open_api()
        return self._api

    @asynccontextmanager
    async def _alone_with(self, uid: str) -> AsyncIterator[None]:
        """A single call at a time for each claim, in the order of arrival."""
        lock = self._locks.setdefault(uid, anyio.Lock(fast_acquire=True))
        self._users[uid] += 1
        try:
            async with lock:
                yield
        finally:
            self._users[uid] -= 1
            if not self._users[uid]:
                del self._users[uid], self._locks[uid]

    # Reports.

    def _show_metadata(self) -> None:
        problems = self._makers.metadata.problems
        if problems == self._without_metadata:
            return
        for uid, problem in problems.items():
            if self._without_metadata.get(uid) != problem:
                self._log.warning("claim_metadata_not_written", uid=uid, reason=problem)
        self._without_metadata = dict(problems)
        self._conditions.replace("claim-metadata-not-written", problems)

    def _note_standing(self, standing: ClaimStanding) -> None:
        envelope = self._bus.publish_state(standing, source=self.name)
        problem = "" if standing.registered else standing.last_error or "it has not been registered so far"
        self._conditions.show("claims-not-registered", problem, cause=envelope)
