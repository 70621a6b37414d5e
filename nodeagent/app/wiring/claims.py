"""Builds the component for claims."""

from collections.abc import Awaitable, Callable

from nodeagent.app.services import Services
from nodeagent.app.wiring.cluster import ClusterWiring
from nodeagent.app.wiring.container import ContainerWiring
from nodeagent.app.wiring.kubelet import KubeletWiring
from nodeagent.components.claims.component import Claims
from nodeagent.components.claims.make import ClaimDependencies, Makers
from nodeagent.components.claims.metadata import ClaimMetadata
from nodeagent.components.claims.sharing import LimitsFolders, TimeSlices
from nodeagent.config.sections.claims import locate_registration, locate_service
from nodeagent.core.children.worker_thread import WorkerThread
from nodeagent.edge.host.devices.pcie_roots import HostPcieRoots
from nodeagent.edge.host.files.metadata_files import METADATA_FOLDERS, HostMetadataFiles
from nodeagent.edge.host.vgpu.fraction_folders import SHARE_FOLDERS, HostFractionFolders
from nodeagent.edge.host.vgpu.library_files import HostVgpuLibrary
from nodeagent.edge.kubelet.claim_session import ClaimSession
from nodeagent.model.claims import ClaimStanding
from nodeagent.model.ports import (
    ClaimApi,
    ClaimDriver,
    ContainerReceipts,
    GpuPartitioning,
    MpsClaims,
    PartitionMaking,
)

LIBRARY_FOLDER = "vgpu"
"""Below the state directory, as for fractions: the library that enforces limits of containers."""


def build_claims(
    services: Services,
    sides: tuple[KubeletWiring, ContainerWiring, ClusterWiring],
    *,
    pool: str,
    partitions: Callable[[], PartitionMaking] | None = None,
    mps: Callable[[], MpsClaims] | None = None,
    cards: GpuPartitioning | None = None,
    receipts: ContainerReceipts | None = None,
) -> Claims:
    """The component for claims; `cards` is the access for changes of GPUs, if any."""
    live = services.live
    kubelet, containers, cluster = sides
    files = WorkerThread("files of claims")
    # Made-up GPUs are in no PCIe tree of this host.
    is_simulated = live.now.gpus.simulated_profile is not None
    read_roots = None if is_simulated else HostPcieRoots(files, live.now.node.sys_dir).read_roots

    async def serve(driver: ClaimDriver, report: Callable[[ClaimStanding], None], opened: Callable[[], None]) -> None:
        settings = live.now.claims
        session = ClaimSession(
            driver,
            settings.driver,
            locate_service(settings),
            locate_registration(settings),
            report=report,
            report_crash=kubelet.note_crash,
            times=kubelet.call_times,
        )
        await session.run(opened)

    open_api: Callable[[], Awaitable[ClaimApi]] | None = cluster.open_claims if cluster.is_in_use else None
    dependencies = ClaimDependencies(
        keeper=kubelet.journal, serve=serve, read_pods=kubelet.account.read_pods, open_api=open_api
    )
    return Claims(
        *services,
        dependencies,
        Makers(
            specs=containers.cdi.get,
            metadata=ClaimMetadata(
                HostMetadataFiles(live.now.node.state_dir / METADATA_FOLDERS, files),
                live.now.claims.driver,
                read_roots,
            ),
            partitions=partitions,
            mps=mps,
            shares=LimitsFolders(
                live,
                HostFractionFolders(live.now.node.state_dir / SHARE_FOLDERS, files, of_claims=True),
                HostVgpuLibrary(live.now.node.state_dir / LIBRARY_FOLDER, files),
            ),
            cuts_on_demand=live.now.claims.mig_on_demand,
            gives_shares=live.now.claims.shares,
            turns=TimeSlices(cards) if cards is not None else None,
            sets_turns=live.now.claims.time_slices,
            receipts=receipts,
        ),
        pool=pool,
    )
