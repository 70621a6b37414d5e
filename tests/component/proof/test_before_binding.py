"""Pods that wait for a proof of their GPUs, between the cluster's claims, the prover, health and the slices."""

from collections.abc import AsyncGenerator, AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager

import anyio
import pytest
from msgspec.structs import replace

from nodeagent.components.proof.binding_task import (
    CONDITION,
    RECHECK_SECONDS,
    UNHEARD_SECONDS,
    BindingCluster,
)
from nodeagent.config.live import LiveSettings
from nodeagent.config.schema import Settings
from nodeagent.config.sections.hardware import ProofSettings
from nodeagent.edge.kube.errors import ApiConflict, ApiNotFound, ApiUnreachable
from nodeagent.edge.kube.pods import KubeNominatedPods, NominatedForbidden
from nodeagent.edge.kube.resource_claims import KubeClaims, StatusForbidden
from nodeagent.model.allocation import PodIdentity
from nodeagent.model.claims import ClaimResult, DeviceCondition, NominatedPod, ResourceClaim
from nodeagent.model.errors import NodeagentError
from nodeagent.model.events import GpuEventReported
from nodeagent.model.proof import BINDING_CONDITION, BINDING_FAILURE
from nodeagent.model.slices import DeviceTaint, PublishedSlices, SliceContent, SliceDevice
from nodeagent.rules.claims.naming import name_gpu
from tests.component.proof.test_proof import BAD, NODE, PROOF_SECONDS, World
from tests.support.claims import DRIVER, POOL, make_claim, make_result
from tests.support.gpus import gpu_uuid
from tests.support.virtual_time import FakeClock

pytestmark = pytest.mark.virtual_time
NAMES = tuple(map(name_gpu, NODE.gpus))
AWAY = ApiUnreachable("the API server", "watch pods", "it is away")


class Pods(KubeNominatedPods):
    """The watch: a table that a test changes, or the error with which it breaks."""

    trouble: NodeagentError | None = None

    def __init__(self) -> None:
        self.table: dict[str, NominatedPod] = {}
        self.changed = anyio.Event()

    async def follow(self) -> AsyncGenerator[Mapping[str, NominatedPod], None]:
        while True:
            if self.trouble is not None:
                raise self.trouble
            yield dict(self.table)
            await self.changed.wait()

    def change(self) -> None:
        self.changed.set()
        self.changed = anyio.Event()


class Claims(KubeClaims):
    """The claims as the API server has them; `troubles` are the answers to the next writes."""

    trouble: NodeagentError | None = None

    def __init__(self) -> None:
        self.stored: dict[str, ResourceClaim] = {}
        self.troubles: list[NodeagentError] = []
        self.reads = 0
        self.written: list[dict[str, tuple[bool, str]]] = []

    async def find_claim(self, namespace: str, name: str) -> ResourceClaim | None:
        self.reads += 1
        if self.trouble is not None:
            raise self.trouble
        return self.stored.get(name)

    async def write_conditions(
        self, claim: ResourceClaim, conditions: Sequence[DeviceCondition], wall_seconds: float
    ) -> None:
        if self.troubles:
            raise self.troubles.pop(0)
        if claim.name not in self.stored:
            raise ApiNotFound("write conditions", 404, "there is no such claim")
        self.written.append({one.result.device: (one.is_proven, one.reason) for one in conditions})
        reached = {one.result.device: BINDING_CONDITION if one.is_proven else BINDING_FAILURE for one in conditions}
        results = tuple(replace(one, reached=frozenset({reached[one.device]})) for one in claim.results)
        self.stored[claim.name] = replace(claim, results=results)


class Queue(World):
    """The agent between pods that are not bound yet and slices that are written 1 s after a failure."""

    def __init__(self, clock: FakeClock, idle: str = "off", **proof: object) -> None:
        super().__init__(clock)
        settings = ProofSettings(idle=idle, before_binding="quick", **proof)  # type: ignore[arg-type]
        self.live = LiveSettings(Settings(proof=settings))
        self.pods, self.claims = Pods(), Claims()
        self.contents: tuple[SliceContent, ...] = ()
        self.cluster = BindingCluster(self.pods, self.claims, POOL, lambda: self.contents)
        self.show_slices()

    def show_slices(self, *tainted: str) -> None:
        taint = DeviceTaint(key=f"{DRIVER}/proof-failed", value="unhealthy", effect="NoSchedule")
        devices = [SliceDevice(name=name, taints=(taint,) if name in tainted else ()) for name in NAMES]
        self.contents = (SliceContent(devices=tuple(devices)),)
        self.bus.publish_state(PublishedSlices(driver=DRIVER, pool=POOL, tainted=tainted), source="test")

    def want(self, name: str, *indexes: int, at: str = "t1") -> None:
        """A pod with a claim; without devices the claim is not allocated yet."""
        results = [make_result(NAMES[index], awaited=(BINDING_CONDITION,)) for index in indexes]
        self.allocate_claim(name, *results, at=at)
        pod = PodIdentity(namespace="ns", name=name, uid=f"uid-{name}")
        self.pods.table[pod.uid] = NominatedPod(pod=pod, claims=(name,))
        self.pods.change()

    def allocate_claim(self, name: str, *results: ClaimResult, at: str = "t1") -> None:
        claim = make_claim(*results, uid=f"claim-{name}", name=name, is_allocated=bool(results), allocated_at=at)
        self.claims.stored[name] = claim

    @asynccontextmanager
    async def running(self, seconds: float = 1.0) -> AsyncIterator["Queue"]:
        async with super().running(seconds), anyio.create_task_group() as tasks:
            tasks.start_soon(self._taint)
            yield self
            tasks.cancel_scope.cancel()

    async def _taint(self) -> None:
        with self.bus.listen(GpuEventReported, client="slices") as facts:
            async for envelope in facts:
                assert self.claims.written == []
                await anyio.sleep(1)
                self.show_slices(
                    *(name for name, gpu in zip(NAMES, NODE.gpus, strict=True) if gpu.uuid == envelope.value.gpu)
                )


async def test_a_pod_waits_for_one_proof_and_the_next_for_none(clock: FakeClock) -> None:
    async with Queue(clock).running() as queue:
        assert queue.state.is_before_binding
        queue.want("a", 0)
        await anyio.sleep(PROOF_SECONDS + 1)
        assert (queue.claims.written, queue.prover.begun) == ([{NAMES[0]: (True, "Proven")}], [gpu_uuid(0)])
        queue.want("b", 0)
        await anyio.sleep(1)
        assert (len(queue.claims.written), queue.prover.begun) == (2, [gpu_uuid(0)])
        reads = queue.claims.reads
        await anyio.sleep(10 * RECHECK_SECONDS)
        assert (len(queue.claims.written), queue.prover.begun) == (2, [gpu_uuid(0)])
        assert queue.claims.reads - reads <= 2 * 11


async def test_a_gpu_that_fails_is_tainted_before_the_scheduler_hears_of_it(clock: FakeClock) -> None:
    """And each device that the scheduler waits for tells of it."""
    async with Queue(clock).running() as queue:
        queue.prover.readings[gpu_uuid(1)] = BAD
        queue.want("a", 0, 1)
        await anyio.sleep(2 * PROOF_SECONDS + 0.9)
        assert (queue.failed, queue.claims.written) == ([gpu_uuid(1)], [])
        await anyio.sleep(1)
        assert queue.claims.written == [{NAMES[0]: (True, "Proven"), NAMES[1]: (False, "ProofFailed")}]


async def test_two_claims_of_two_gpus_are_proven_one_after_the_other(clock: FakeClock) -> None:
    async with Queue(clock).running() as queue:
        queue.want("a", 0)
        queue.want("b", 1)
        await anyio.sleep(2 * PROOF_SECONDS + 1)
        assert queue.prover.begun == [gpu_uuid(0), gpu_uuid(1)]
        assert queue.claims.written == [{NAMES[0]: (True, "Proven")}, {NAMES[1]: (True, "Proven")}]
        assert queue.prover.killed == []


async def test_an_agent_that_starts_anew_takes_up_a_pod_that_waits(clock: FakeClock) -> None:
    queue = Queue(clock)
    async with queue.running():
        queue.want("a", 0)
        await anyio.sleep(1)
    assert (queue.claims.written, queue.prover.killed) == ([], [gpu_uuid(0)])
    async with queue.running(PROOF_SECONDS + 1):
        assert queue.claims.written == [{NAMES[0]: (True, "Proven")}]


async def test_a_claim_that_is_gone_or_not_allocated_or_unreadable_is_left_alone(clock: FakeClock) -> None:
    """Until it is allocated; a pod that is bound or gone is asked about no more."""
    async with Queue(clock).running() as queue:
        queue.want("a")
        await anyio.sleep(3)
        queue.claims.trouble = AWAY
        queue.allocate_claim("a", make_result(NAMES[0], awaited=(BINDING_CONDITION,)))
        await anyio.sleep(3)
        assert queue.prover.begun == []
        queue.claims.trouble = None
        await anyio.sleep(2)
        assert queue.prover.begun == [gpu_uuid(0)]
        queue.claims.stored.clear()
        await anyio.sleep(2 * RECHECK_SECONDS)
        queue.pods.table.clear()
        queue.pods.change()
        await anyio.sleep(1)
        reads = queue.claims.reads
        await anyio.sleep(60)
        assert (queue.claims.written, queue.claims.reads - reads) == ([], 0)


async def test_a_claim_that_changed_is_read_anew_and_a_failed_write_is_tried_again(clock: FakeClock) -> None:
    async with Queue(clock).running() as queue:
        queue.claims.troubles = [ApiConflict("write", 409, "another version"), AWAY]
        queue.want("a", 0)
        await anyio.sleep(PROOF_SECONDS + 2)
        assert queue.claims.written == []
        await anyio.sleep(RECHECK_SECONDS + 1)
        assert queue.claims.written == [{NAMES[0]: (True, "Proven")}]


async def test_a_pod_is_bound_without_a_proof_where_its_gpu_cannot_be_tested(clock: FakeClock) -> None:
    """A process without a pod has the GPU; the wait is bounded, and the claim says why."""
    async with Queue(clock, patience_seconds=20.0).running() as queue:
        queue.show_processes(0)
        queue.want("a", 0)
        await anyio.sleep(19)
        assert queue.claims.written == []
        await anyio.sleep(2)
        assert (queue.claims.written, queue.prover.begun) == ([{NAMES[0]: (True, "NotTested")}], [])


async def test_a_gpu_for_which_a_pod_waits_comes_before_the_idle_ones(clock: FakeClock) -> None:
    async with Queue(clock, idle="proof", free_seconds=5.0, spread_seconds=0.0).running(5.5) as queue:
        assert queue.prover.begun == [gpu_uuid(0)]
        queue.want("a", 1)
        await anyio.sleep(2 * PROOF_SECONDS)
        assert queue.prover.begun == [gpu_uuid(0), gpu_uuid(1)]
        assert queue.claims.written == [{NAMES[1]: (True, "Proven")}]


async def test_slices_ask_for_no_proof_where_the_rights_are_missing(clock: FakeClock) -> None:
    queue = Queue(clock)
    queue.pods.trouble = NominatedForbidden("watch pods", 403, "no right")
    async with queue.running():
        assert not queue.state.is_before_binding
        (detail,) = queue.details(CONDITION)
        assert "no right" in detail
        queue.pods.trouble = None
        await anyio.sleep(40)
        assert (queue.state.is_before_binding, queue.details(CONDITION)) == (True, [])


async def test_a_refused_write_ends_the_asking_for_good(clock: FakeClock) -> None:
    """A watch that goes on says nothing about the right to write."""
    async with Queue(clock).running() as queue:
        queue.claims.troubles = [StatusForbidden("write", 403, "no right to write")]
        queue.want("a", 0)
        await anyio.sleep(PROOF_SECONDS + 1)
        assert not queue.state.is_before_binding
        queue.want("b", 1)
        await anyio.sleep(PROOF_SECONDS + 1)
        (detail,) = queue.details(CONDITION)
        assert (queue.state.is_before_binding, "no right to write" in detail) == (False, True)


async def test_no_pod_waits_for_a_component_that_failed(clock: FakeClock) -> None:
    queue = Queue(clock)

    async def fail() -> None:
        async with queue.running():
            queue.prover.readings = None  # type: ignore[assignment]
            queue.want("a", 0)
            await anyio.sleep(PROOF_SECONDS + 1)

    with pytest.raises(ExceptionGroup):
        await fail()
    assert queue.state.is_before_binding is False


async def test_nothing_is_told_before_the_first_answer(clock: FakeClock) -> None:
    """Slices stay as they are meanwhile, for no more than a minute."""
    queue = Queue(clock)
    queue.pods.trouble = AWAY
    async with queue.running(UNHEARD_SECONDS - 10):
        assert queue.state.is_before_binding is None
        await anyio.sleep(60)
        assert queue.state.is_before_binding is False


async def test_a_watch_that_breaks_is_forgiven_for_a_minute(clock: FakeClock) -> None:
    async with Queue(clock).running() as queue:
        queue.pods.trouble = AWAY
        queue.pods.change()
        await anyio.sleep(UNHEARD_SECONDS / 2)
        assert queue.state.is_before_binding
        await anyio.sleep(UNHEARD_SECONDS)
        assert not queue.state.is_before_binding


async def test_no_claim_is_judged_before_the_slices_are_known(clock: FakeClock) -> None:
    """A just started agent would take a device for one that it does not offer."""
    queue = Queue(clock)
    queue.contents = ()
    queue.want("a", 0)
    async with queue.running():
        assert (queue.claims.written, queue.prover.begun) == ([], [])
        queue.show_slices()
        await anyio.sleep(PROOF_SECONDS + 1)
        assert queue.claims.written == [{NAMES[0]: (True, "Proven")}]
