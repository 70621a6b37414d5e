"""The component that makes claims ready, with the journal's keeper beside it, and fakes round both."""

from collections.abc import AsyncIterator, Callable, Collection, Mapping, Sequence
from contextlib import asynccontextmanager
from typing import Any

import anyio
from msgspec.structs import replace

from nodeagent.components.allocations.component import Allocations
from nodeagent.components.allocations.journal_task import Journal
from nodeagent.components.allocations.ledger import Node
from nodeagent.components.claims.component import Claims
from nodeagent.components.claims.make import ClaimDependencies, Makers, ServeClaims
from nodeagent.components.claims.metadata import ClaimMetadata
from nodeagent.components.claims.sharing import LimitsFolders, TimeSlices
from nodeagent.config.live import LiveSettings
from nodeagent.config.schema import Settings
from nodeagent.config.sections.claims import ClaimsSettings
from nodeagent.core.channels.bus import Bus
from nodeagent.core.conditions import Conditions
from nodeagent.model.allocation import PodIdentity
from nodeagent.model.claims import ClaimReference, ClaimStanding, DeviceAnswer, ReadyClaims, ResourceClaim
from nodeagent.model.cluster import ClusterNode
from nodeagent.model.conditions import CATALOGUE
from nodeagent.model.errors import MpsRefused, NodeagentError
from nodeagent.model.gpu import Gpu, Inventory, MigDevice
from nodeagent.model.health import HealthReport
from nodeagent.model.ids import GpuUuid, MigUuid
from nodeagent.model.journal import PreparedClaim
from nodeagent.model.mig import PartitionRequest
from nodeagent.model.mps import MpsAccess, MpsLimits
from nodeagent.model.plugin import ContainerMount
from nodeagent.model.ports import ClaimApi, ClaimDriver, ClaimedSpec
from nodeagent.model.runtime import CdiState
from tests.component.fractions.harness import FakeFolders, FakeLibrary
from tests.fakes.journal_store import FakeKubelet, FakeStore
from tests.support.claims import (
    DRIVER,
    POOL,
    behind_claims,
    make_claim,
    make_reference,
    make_result,
    with_minors,
)
from tests.support.gpus import make_gpu
from tests.support.virtual_time import FakeClock

ONE = (
    DeviceAnswer(
        requests=("gpu",),
        pool=POOL,
        device="gpu-0",
        cdi_names=("k8s.gpu.nvidia.com/claim=claim-1-gpu-0",),
    ),
)


class FakeSpecs:
    """What container runtimes would find, by the claim's uid."""

    def __init__(self) -> None:
        self.files: dict[str, tuple[ClaimedSpec, ...]] = {}
        self.broken = ""
        self.hangs = False

    async def write_claim(self, uid: str, devices: Sequence[ClaimedSpec]) -> None:
        if self.broken:
            raise NodeagentError(self.broken)
        self.files[uid] = tuple(devices)

    async def remove_claim(self, uid: str) -> None:
        if self.hangs:
            await anyio.sleep_forever()
        if self.broken:
            raise NodeagentError(self.broken)
        self.files.pop(uid, None)

    async def keep_claims(self, uids: Collection[str]) -> None:
        self.files = {uid: devices for uid, devices in self.files.items() if uid in uids}


class FakeMetadata:
    """The metadata files of claims, by uid and request."""

    def __init__(self) -> None:
        self.files: dict[str, dict[str, bytes]] = {}
        self.written = 0
        self.broken = ""

    def locate(self, uid: str, request: str) -> str:
        return f"/metadata/{uid}/{request}.json"

    async def read(self, uid: str) -> dict[str, bytes]:
        return dict(self.files.get(uid, {}))

    async def write(self, uid: str, files: Mapping[str, bytes]) -> None:
        self._check()
        self.written += 1
        self.files.setdefault(uid, {}).update(files)

    async def remove(self, uid: str) -> None:
        self._check()
        self.files.pop(uid, None)

    async def list_uids(self) -> tuple[str, ...]:
        return tuple(self.files)

    def _check(self) -> None:
        if self.broken:
            raise NodeagentError(self.broken)


class FakeApi:
    """What the API server says of claims and pods."""

    def __init__(self) -> None:
        self.claims: dict[str, ResourceClaim] = {}
        self.alive = set[str]()
        self.broken = ""
        self.asked = self.learned = 0
        self._reading = self.reading_most = 0
        self.delay_seconds = 0.0

    def put(self, *claims: ResourceClaim) -> None:
        self.claims |= {claim.name: claim for claim in claims}

    async def learn_version(self) -> None:
        self.learned += 1
        if self.broken:
            raise NodeagentError(self.broken)

    async def find_claim(self, namespace: str, name: str) -> ResourceClaim | None:
        self.asked += 1
        self._reading += 1
        self.reading_most = max(self.reading_most, self._reading)
        try:
            await anyio.sleep(self.delay_seconds)
        finally:
            self._reading -= 1
        if self.broken:
            raise NodeagentError(self.broken)
        return self.claims.get(name)

    async def is_alive(self, pod: PodIdentity) -> bool:
        return pod.uid in self.alive


class FakeMps:
    """Daemons of MPS by claim."""

    def __init__(self) -> None:
        self.open: dict[str, list[tuple[tuple[GpuUuid, ...], MpsLimits]]] = {}
        self.broken = ""

    async def open_claim(self, claim: str, gpus: Sequence[GpuUuid], limits: MpsLimits) -> MpsAccess:
        if self.broken:
            raise MpsRefused(self.broken)
        daemons = self.open.setdefault(claim, [])
        if (tuple(gpus), limits) not in daemons:
            daemons.append((tuple(gpus), limits))
        mount = ContainerMount(container_path="/tmp/nvidia-mps", host_path=f"/run/mps/{claim}")  # theirs
        return MpsAccess(environment={"CUDA_MPS_PIPE_DIRECTORY": "/tmp/nvidia-mps"}, mounts=(mount,))

    async def close_claim(self, claim: str) -> None:
        if self.broken:
            raise MpsRefused(self.broken)
        self.open.pop(claim, None)


class FakePartitions:
    """MIG devices that are made on demand, by key."""

    def __init__(self) -> None:
        self.made: dict[str, PartitionRequest] = {}
        self.broken = ""

    async def make_partition(self, key: str, request: PartitionRequest) -> MigDevice:
        if self.broken:
            raise NodeagentError(self.broken)
        self.made[key] = request
        known = make_gpu(0, mig=["1g.10gb"]).mig_devices[0]
        return replace(known, uuid=MigUuid(f"MIG-{key.partition('-mig-')[2]}"), parent=request.gpu)

    async def remove_partition(self, key: str) -> None:
        if self.broken:
            raise NodeagentError(self.broken)
        self.made.pop(key, None)

    def partitions(self) -> dict[str, PartitionRequest]:
        return self.made


class FakeCards:
    """GPUs whose time slice is set; who else would change them is not asked here."""

    def __init__(self, slices: dict[GpuUuid, int], world: "World") -> None:
        self._slices, self._world = slices, world

    @asynccontextmanager
    async def begin(self) -> AsyncIterator[Any]:
        yield self

    async def set_time_slice(self, gpu: Gpu, number: int) -> None:
        if self._world.broken_tool:
            raise NodeagentError(self._world.broken_tool)
        self._slices[gpu.uuid] = number


class World:
    """Everything round the component, which may be ended and begun again."""

    def __init__(self, clock: FakeClock, inventory: Inventory | None = None, serve: ServeClaims | None = None) -> None:
        self.clock = clock
        self.inventory = inventory or with_minors(*map(make_gpu, range(4)))
        self.live = LiveSettings(Settings(claims=ClaimsSettings(enabled=True)))
        self.bus = Bus(clock)
        self.conditions = Conditions(self.bus, clock, CATALOGUE)
        self.store, self.kubelet = FakeStore(), FakeKubelet()
        self.journal = Journal(
            self.bus, self.conditions, clock, self.live, self.kubelet,  # type: ignore[arg-type]  # as far as it is used
            open_store=lambda: self.store,  # type: ignore[arg-type,return-value]  # as far as it is used
            read_node=lambda: Node("machine", "boot"),
        )  # fmt: skip
        self.specs, self.mps, self.partitions, self.metadata = FakeSpecs(), FakeMps(), FakePartitions(), FakeMetadata()
        self.folders, self.slices = FakeFolders(), dict[GpuUuid, int]()
        self.broken_tool, self.kubelet_version, self.knows_node = "", "v1.36.3", True
        self.makers = Makers(
            specs=lambda: self.specs,
            metadata=ClaimMetadata(self.metadata, DRIVER, None),
            partitions=lambda: self.partitions,
            mps=lambda: self.mps,
            shares=LimitsFolders(self.live, self.folders, FakeLibrary()),
            gives_shares=True,
            turns=TimeSlices(FakeCards(self.slices, self)),
            sets_turns=True,
        )
        self.api: FakeApi | None = FakeApi()
        self.serve = serve or self._serve
        self.claims: Claims

    @property
    def codes(self) -> list[str]:
        return sorted(one.code for one in self.conditions.all_set())

    @property
    def prepared(self) -> dict[str, PreparedClaim]:
        book = self.bus.latest(ReadyClaims)
        return {} if book is None else dict(book.value.claims)

    def tell(self, *, is_open: bool = True) -> None:
        self.bus.publish_state(self.inventory, source="test")
        self.bus.publish_state(behind_claims(self.inventory.gpus, is_open=is_open), source="test")
        self.bus.publish_state(CdiState(generation=1), source="test")
        if self.knows_node:
            node = ClusterNode(name=POOL, uid="1", kubelet_version=self.kubelet_version)
            self.bus.publish_state(node, source="test")
        self.bus.publish_state(HealthReport(generation=1), source="test")

    @asynccontextmanager
    async def running(self) -> AsyncIterator[None]:
        """Journal and component at work, on a node that is known."""
        async with self.keeping():
            self.tell()
            async with self.serving():
                yield

    @asynccontextmanager
    async def keeping(self) -> AsyncIterator[None]:
        keeper = Allocations(self.bus, self.conditions, self.clock, self.live, self.journal)
        async with anyio.create_task_group() as tasks:
            await tasks.start(lambda task_status: keeper.run(task_status=task_status))
            yield
            tasks.cancel_scope.cancel()

    @asynccontextmanager
    async def serving(self) -> AsyncIterator[None]:
        self.claims = self.build()
        async with anyio.create_task_group() as tasks:
            await tasks.start(lambda task_status: self.claims.run(task_status=task_status))
            yield
            tasks.cancel_scope.cancel()

    def build(self) -> Claims:
        around = ClaimDependencies(
            keeper=self.journal,
            serve=self.serve,
            read_pods=self.kubelet.read_pods,
            open_api=self._open_api if self.api is not None else None,
        )
        return Claims(self.bus, self.conditions, self.clock, self.live, around, self.makers, pool=POOL)

    async def _open_api(self) -> ClaimApi:
        assert self.api is not None
        return self.api

    async def _serve(
        self, driver: ClaimDriver, report: Callable[[ClaimStanding], None], opened: Callable[[], None]
    ) -> None:
        report(ClaimStanding(driver=DRIVER, socket="/dra.sock", registered=True))
        opened()
        await anyio.sleep_forever()

    # What the kubelet would do; others hear of it in the turn after its answer.

    async def prepare(self, *references: ClaimReference) -> dict[str, tuple[DeviceAnswer, ...] | str]:
        answers = await self.claims.prepare(references or (make_reference(),))
        await anyio.lowlevel.checkpoint()
        return dict(answers)

    async def unprepare(self, *references: ClaimReference) -> dict[str, str]:
        answers = await self.claims.unprepare(references or (make_reference(),))
        await anyio.lowlevel.checkpoint()
        return dict(answers)


def api(world: World) -> None:
    assert world.api is not None
    world.api.put(make_claim(make_result()), make_claim(make_result("gpu-1"), uid="claim-2", name="c2"))
