"""Optional components: built only if the settings ask for them."""

from collections.abc import Awaitable, Callable, Sequence
from functools import cached_property, partial
from typing import TYPE_CHECKING

from nodeagent.app.hardware import Hardware, is_mps_used
from nodeagent.app.host_root import find_driver_roots
from nodeagent.app.services import Services
from nodeagent.app.wiring.claims import build_claims
from nodeagent.app.wiring.cluster import ClusterWiring
from nodeagent.app.wiring.container import ContainerWiring
from nodeagent.app.wiring.devices import DevicesWiring
from nodeagent.app.wiring.fractions import build_fractions
from nodeagent.app.wiring.kubelet import KubeletWiring
from nodeagent.app.wiring.mig import MigWiring
from nodeagent.app.wiring.mig_paused_clients import MigCluster, build_paused_clients
from nodeagent.app.wiring.mps import MpsWiring
from nodeagent.app.wiring.receipts import ReceiptsWiring
from nodeagent.app.wiring.slices import SlicesWiring
from nodeagent.components.allocations.repair_journal_task import DriverUpgrades, RepairSessions
from nodeagent.components.signals.nvsentinel import MEMORY as TOLD_MEMORY
from nodeagent.components.signals.nvsentinel import STORE as TOLD_STORE
from nodeagent.components.signals.nvsentinel_task import Nvsentinel
from nodeagent.core.children.worker_thread import WorkerThread
from nodeagent.core.life.component import Component, ComponentSpec
from nodeagent.core.life.gates import Gates
from nodeagent.core.life.handle import Handle
from nodeagent.core.life.orders import OrderHandlers
from nodeagent.edge.host.driver.cuda_check import LIBRARY
from nodeagent.edge.host.driver.roots import find_library
from nodeagent.edge.host.files.sealed_store import SealedStore
from nodeagent.edge.nvsentinel.connector import PlatformConnector
from nodeagent.model.errors import MpsRefused
from nodeagent.model.mig import MEMORY
from nodeagent.model.orders import APPLY_LAYOUT
from nodeagent.model.ports import ContainerReceipts, DeviceFractionSpecs
from nodeagent.model.slices import SliceContent

if TYPE_CHECKING:
    from nodeagent.components.mps.component import Mps
    from nodeagent.components.proof.binding_task import BindingCluster
    from nodeagent.edge.cuda.child import BackgroundProver
    from nodeagent.edge.host.processes.device_users import HostDeviceUsers
    from nodeagent.model.ports import PartitionMaking

DEVICES_GATE = "devices_known"
CLOSED = (
    "device_users",
    "devices_wiring",
    "mig_wiring",
    "mps_wiring",
    "prover",
    "receipts_wiring",
    "slices_wiring",
)
"""The parts with threads of their own."""
MIG_OWED = "mig_owed"
NO_DAEMONS = (
    "this agent does not look after MPS daemons of claims: set mps.claims to true; where it is, the part waits for the"
    " driver's GPUs or has failed, see `nodeagent status`"
)


class OptionalComponents:
    """The optional components with their dependencies, made at first use."""

    def __init__(
        self,
        services: Services,
        sides: tuple[KubeletWiring, ContainerWiring, ClusterWiring],
        hardware: Hardware,
        open_store: Callable[[str, str, int], SealedStore],
        read_gates: Callable[[], Gates],
        node: str,
        orders: OrderHandlers,
    ) -> None:
        self._services, self._live, self._wiring = services, services.live, sides
        self._kubelet, self._containers, self._cluster = sides
        self._hardware, self._open_store = hardware, open_store
        self._read_gates, self._node, self._orders = read_gates, node, orders
        self.partitions: Handle[PartitionMaking] = Handle(APPLY_LAYOUT.refuse)
        self.mps: Handle[Mps] = Handle(lambda: MpsRefused(NO_DAEMONS))

    def specs(self) -> tuple[ComponentSpec, ...]:
        """The components switched on, except for resource slices."""
        settings = self._live.now
        return (
            *(self._device_specs() if settings.devices.classes else ()),
            *(self._fraction_specs() if settings.gives_fractions else ()),
            *(self._mig_specs() if settings.mig.manage else self._paused_clients_specs()),
            *(self._mps_specs() if is_mps_used(settings) else ()),
            *(self._claim_specs() if settings.claims.enabled else ()),
            *self._nvsentinel_specs(),
            *(self._repair_specs() if settings.repairs.mode != "off" else ()),
            *(self._upgrade_specs() if settings.driver.upgrade != "off" else ()),
            *(self._proof_specs() if settings.proof.is_on else ()),
            *(self.receipts_wiring.specs() if ReceiptsWiring.is_used(self._services) else ()),
        )

    def slice_specs(self) -> tuple[ComponentSpec, ...]:
        """The component for resource slices."""
        return self.slices_wiring.specs() if self._live.now.claims.enabled else ()

    def list_slices(self) -> Sequence[SliceContent]:
        """The published resource slices; empty where no claims are served."""
        return self.slices_wiring.contents if self._live.now.claims.enabled else ()

    def close(self) -> None:
        """Let the threads of all parts made so far end."""
        for name in CLOSED:
            if name in self.__dict__:
                self.__dict__[name].close()

    @cached_property
    def devices_wiring(self) -> DevicesWiring:
        """The device side for the life of the process, with device classes configured."""
        return DevicesWiring(self._services, self._kubelet)

    @cached_property
    def mig_wiring(self) -> MigWiring:
        """The MIG side for the life of the process, if the agent cuts GPUs."""
        return MigWiring(self._services, self._orders)

    @cached_property
    def mps_wiring(self) -> MpsWiring:
        """The MPS side for the life of the process, if the agent looks after daemons."""
        return MpsWiring(self._services, self.mps)

    @cached_property
    def prover(self) -> "BackgroundProver":
        """The prover for the life of the process, if GPUs are proven."""
        # Loaded here for the same reason as the repairs.
        from nodeagent.edge.cuda.child import BackgroundProver  # noqa: PLC0415

        environment = dict(self._live.now.driver.worker_environment)
        return BackgroundProver(lambda: find_library(find_driver_roots(self._live.now).driver, LIBRARY), environment)

    @cached_property
    def device_users(self) -> "HostDeviceUsers":
        """The scan of open device files for the life of the process, if GPUs are repaired."""
        from nodeagent.edge.host.processes.device_users import HostDeviceUsers  # noqa: PLC0415

        return HostDeviceUsers(WorkerThread("device users"), self._live.now.node.proc_dir)

    @cached_property
    def receipts_wiring(self) -> ReceiptsWiring:
        """The side of receipts for the life of the process, if containers get or have any."""
        return ReceiptsWiring(self._services, self._kubelet)

    @cached_property
    def slices_wiring(self) -> SlicesWiring:
        """The side of resource slices for the life of the process, if claims are served."""
        return SlicesWiring(self._services, self._cluster, self._node, self._read_gates)

    def _device_specs(self) -> tuple[ComponentSpec, ...]:
        needs, opens = ("allocations_recovered",), (DEVICES_GATE,)
        build = self.devices_wiring.build
        return (ComponentSpec("devices", build, needs=needs, opens=opens, vital=True, stop_stage=10),)

    def _fraction_specs(self) -> tuple[ComponentSpec, ...]:
        gates = self._containers.list_fraction_gates()
        for_gpus = ("inventory_known", "health_known", "doors_known", *gates)

        async def wait_for_gpus() -> None:
            await self._read_gates().wait_open(*for_gpus)

        has_classes = bool(self._live.now.devices.divisible)
        fractions = ComponentSpec(
            "fractions",
            partial(self._build_fractions, wait_for_gpus if has_classes else None),
            needs=("allocations_recovered", *((DEVICES_GATE,) if has_classes else for_gpus)),
            opens=("parts_known",),
            vital=True,
            stop_stage=10,
        )
        return (fractions,)

    def _mig_specs(self) -> tuple[ComponentSpec, ...]:
        # The component waits for GPUs and journal itself: paused clients are unpaused without them, too.
        return (ComponentSpec("mig", self._build_mig, stop_stage=10),)

    def _paused_clients_specs(self) -> tuple[ComponentSpec, ...]:
        """Only if an earlier agent has cut GPUs: a kill may have left other DaemonSets paused."""
        if not any(self._live.now.node.state_dir.glob(f"{MEMORY}*")):
            return ()
        return (ComponentSpec(MIG_OWED, self._build_paused_clients, stop_stage=10),)

    def _nvsentinel_specs(self) -> tuple[ComponentSpec, ...]:
        """Also where an earlier agent has told of faults, whose ends are then told."""
        has_told = any(self._live.now.node.state_dir.glob(f"{TOLD_MEMORY}*"))
        if not (self._live.now.signals.nvsentinel.enabled or has_told):
            return ()
        return (ComponentSpec(Nvsentinel.name, self._build_nvsentinel, stop_stage=10),)

    def _mps_specs(self) -> tuple[ComponentSpec, ...]:
        needs = ("inventory_known", "allocations_recovered", "doors_known")
        return (ComponentSpec("mps", self._build_mps, needs=needs, stop_stage=10),)

    def _claim_specs(self) -> tuple[ComponentSpec, ...]:
        # No other gate: a pod must be able to end while there is no driver, and a claim waits by itself.
        needs = ("allocations_recovered",)
        return (ComponentSpec("claims", self._build_claims, needs=needs, opens=("claims_known",), stop_stage=10),)

    @property
    def _is_simulated(self) -> bool:
        return self._live.now.gpus.simulated_profile is not None

    def _repair_specs(self) -> tuple[ComponentSpec, ...]:
        # Loaded here, before any component starts, and not at all on the nodes without repairs, which are most.
        from nodeagent.app.wiring.repairs import build_repairs  # noqa: PLC0415

        sessions = RepairSessions(self._kubelet.journal, self._services.clock)
        is_acting = self._live.now.repairs.mode == "act" and not self._is_simulated
        prover, users = (self.prover, self.device_users) if is_acting else (None, None)
        build = partial(build_repairs, self._services, self._hardware, sessions, prover, users, self._cluster)
        # No other gate: the findings of a node without a driver, too, are told for what they are.
        return (ComponentSpec("repairs", build, needs=("allocations_recovered",), stop_stage=10),)

    def _upgrade_specs(self) -> tuple[ComponentSpec, ...]:
        # Loaded here for the same reason as the repairs.
        from nodeagent.app.wiring.driver_upgrades import build_upgrades  # noqa: PLC0415

        prover, users = (None, None) if self._is_simulated else (self.prover, self.device_users)
        journal = DriverUpgrades(self._kubelet.journal)
        build = partial(
            build_upgrades, self._services, self._hardware, journal, self._orders, self._cluster, prover, users
        )
        # No other gate: an upgrade under way goes on without a driver.
        return (ComponentSpec("upgrades", build, needs=("allocations_recovered",), stop_stage=10),)

    def _proof_specs(self) -> tuple[ComponentSpec, ...]:
        if self._is_simulated:
            # Simulated GPUs compute nothing, so there is nothing to prove.
            return ()
        from nodeagent.components.proof.component import STORE, Proof  # noqa: PLC0415

        def build() -> Component:
            store = self._open_store(*STORE)
            return Proof(*self._services, self.prover, store, self._node, self._open_binding())

        # The component waits for GPUs, verdicts and modes itself, and proves nothing before the journal is read.
        return (ComponentSpec("proof", build, needs=("allocations_recovered",), stop_stage=10),)

    def _open_binding(self) -> "BindingCluster | None":
        if self._live.now.proof.before_binding == "off":
            return None
        if not self._cluster.is_in_use:
            reason = "there is no API server to ask: set kubernetes.kubeconfig, or run as a pod"
            self._services.conditions.set("claims-not-proven", detail=reason)
            return None
        from nodeagent.components.proof.binding_task import BindingCluster  # noqa: PLC0415

        pods, claims = self._cluster.open_binding()
        return BindingCluster(pods, claims, self._node, self.list_slices)

    def _build_fractions(self, wait_for_gpus: Callable[[], Awaitable[None]] | None) -> Component:
        def find_specs() -> DeviceFractionSpecs:
            return self.devices_wiring.plugins.component.get().fraction_specs

        return build_fractions(
            self._services,
            self._wiring,
            self._hardware.simulation,
            self._orders,
            device_specs=find_specs if self._live.now.devices.divisible else None,
            wait_for_gpus=wait_for_gpus,
            receipts=self._find_receipts(),
        )

    def _build_mig(self) -> Component:
        partitioning = self._hardware.partitioning
        assert partitioning is not None
        cluster = self._open_mig_cluster()
        return self.mig_wiring.build(partitioning, self._kubelet.journal, self.partitions, self._open_store, cluster)

    def _build_paused_clients(self) -> Component:
        return build_paused_clients(self._services, self._open_store, self._open_mig_cluster())

    def _open_mig_cluster(self) -> MigCluster | None:
        return MigCluster(self._cluster.open_evictions) if self._cluster.is_in_use else None

    def _build_nvsentinel(self) -> Component:
        connector = PlatformConnector(self._live.now.signals.nvsentinel.socket, self._node)
        return Nvsentinel(*self._services, connector, self._open_store(*TOLD_STORE))

    def _build_mps(self) -> Component:
        partitioning = self._hardware.partitioning
        assert partitioning is not None
        return self.mps_wiring.build(partitioning, self._kubelet.journal)

    def _build_claims(self) -> Component:
        settings = self._live.now
        partitions = self.partitions.get if settings.mig.manage else None
        mps = self.mps.get if settings.mps.claims else None
        cards = self._hardware.partitioning
        return build_claims(
            self._services,
            self._wiring,
            pool=self._node,
            partitions=partitions,
            mps=mps,
            cards=cards,
            receipts=self._find_receipts(),
        )

    def _find_receipts(self) -> ContainerReceipts | None:
        return self.receipts_wiring.folders if self._live.now.signals.receipts else None
