"""The simulated node as the driver would list it: the world in the model's vocabulary. Pure.

Refuses readings that change each second: `sample` has those.
"""

from nodeagent.model.driver import DriverEvidence, LibraryAnswer, LibraryOutcome, PciFunction
from nodeagent.model.gpu import (
    Fabric,
    FabricPhase,
    Gpu,
    GpuReadout,
    Mig,
    MigAttributes,
    MigDevice,
    MigProfile,
    MissingGpu,
    PciIdentity,
)
from nodeagent.model.ids import MigUuid
from nodeagent_sim.gpus.gpu_state import GpuState
from nodeagent_sim.gpus.hardware import GpuModel, make_serial
from nodeagent_sim.gpus.load import Tenant
from nodeagent_sim.gpus.mig_geometry import GEOMETRIES, MigShape, list_shapes
from nodeagent_sim.gpus.profile import FabricSpec
from nodeagent_sim.gpus.topology import list_pairs, list_switches
from nodeagent_sim.gpus.world import World

HEALTHY_FABRIC = 1


def render_readout(world: World) -> GpuReadout:
    """All GPUs, links and switches as the driver would list them now."""
    links = {gpu.seat.index: world.list_links(gpu) for gpu in world.listed}
    return GpuReadout(
        gpus=tuple(_render_gpu(world, gpu, index) for index, gpu in enumerate(world.listed)),
        pairs=list_pairs(world.profile, {gpu.seat.index: gpu.uuid for gpu in world.listed}, links),
        switches=list_switches(world.profile),
        missing=tuple(
            MissingGpu(
                address=gpu.seat.address,
                device_id=gpu.seat.model.pci.sysfs_device_id,
                reason="on the PCI bus, but the driver could not start it",
            )
            for gpu in world.present
            if gpu.faults.hidden
        ),
    )


def render_evidence(world: World, *, stuck: str = "", released: str = "") -> DriverEvidence:
    """The present evidence of the simulated driver."""
    driver = world.driver
    asked = not stuck and not released
    return DriverEvidence(
        pci_functions=tuple(
            PciFunction(
                address=gpu.seat.address,
                device_id=gpu.seat.model.pci.sysfs_device_id,
                bound_driver="nvidia" if driver.loaded else "",
                numa_node=gpu.seat.numa_node,
            )
            for gpu in world.present
        ),
        module_loaded=driver.loaded,
        module_version=driver.module_version if driver.loaded else "",
        open_module=world.profile.driver.open_module if driver.loaded else None,
        library_version=driver.library_version,
        library=_render_answer(world) if asked else None,
        nvswitch_count=len(world.profile.switches) if driver.loaded else 0,
        fabric_pending=tuple(gpu.uuid for gpu in world.listed) if asked and _is_fabric_pending(world) else (),
        stuck=stuck,
        released=released,
    )


def list_devices(gpu: GpuState) -> tuple[MigDevice, ...]:
    """The GPU's MIG devices; empty while MIG is off."""
    return tuple(
        _render_mig_device(gpu, index, tenant)
        for index, tenant in enumerate(gpu.tenants)
        if tenant.instance is not None
    )


def _render_answer(world: World) -> LibraryAnswer:
    driver, spec = world.driver, world.profile.driver
    library = f"libnvidia-ml.so.{driver.library_version}"
    if not driver.loaded:
        return LibraryAnswer(
            outcome=LibraryOutcome.DRIVER_NOT_LOADED, code=9, message="Driver Not Loaded", library_path=library
        )
    if driver.library_version != driver.module_version:
        message = "Driver/library version mismatch"
        return LibraryAnswer(outcome=LibraryOutcome.VERSION_MISMATCH, code=18, message=message, library_path=library)
    return LibraryAnswer(
        message="Success",
        driver_version=driver.module_version,
        version=f"{spec.cuda[0]}.{driver.library_version}",
        cuda_version=spec.cuda,
        gpu_count=len(world.listed),
        library_path=library,
    )


def _is_fabric_pending(world: World) -> bool:
    return world.driver.fabric_pending and world.profile.fabric is not None


def _render_gpu(world: World, gpu: GpuState, index: int) -> Gpu:
    model, seat = gpu.seat.model, gpu.seat
    return Gpu(
        index=index,
        uuid=gpu.uuid,
        name=model.name,
        pci=PciIdentity(
            address=seat.address,
            device_id=model.pci.device_id,
            subsystem_id=model.pci.subsystem_id,
            link_generation_max=model.pci.generation,
            link_width_max=model.pci.width,
        ),
        minor=seat.index,
        numa_node=seat.numa_node,
        cpu_affinity=seat.cpu_affinity,
        memory_total_bytes=model.total_bytes,
        compute_capability=model.compute_capability,
        architecture=model.architecture,
        brand=model.brand,
        serial=make_serial(gpu.uuid),
        board_part_number=model.board_part_number,
        vbios_version=model.vbios_version,
        multiprocessor_count=model.multiprocessors,
        power_limit_milliwatts=model.power.limit_watts * 1000,
        persistence_mode=gpu.persistence_mode,
        compute_mode=gpu.compute_mode,
        application_clocks_mhz=(model.clocks.memory_mhz, model.clocks.sm_mhz),
        ecc_enabled=True,
        inforom_valid=True,
        addressing_mode=world.profile.addressing_mode,
        mig=_render_mig(gpu),
        nvlinks=world.list_links(gpu),
        fabric=_render_fabric(world.profile.fabric, pending=world.driver.fabric_pending),
        lost=gpu.faults.lost,
    )


def _render_fabric(spec: FabricSpec | None, *, pending: bool) -> Fabric | None:
    if spec is None:
        return None
    if pending:
        return Fabric(phase=FabricPhase.IN_PROGRESS)
    return Fabric(
        phase=FabricPhase.COMPLETED,
        cluster_uuid=spec.cluster_uuid,
        clique_id=spec.clique_id,
        health_mask=spec.health_mask,
        health_summary=HEALTHY_FABRIC,
    )


def _render_mig(gpu: GpuState) -> Mig | None:
    model = gpu.seat.model
    if model.mig is None:
        return None
    enabled = gpu.mig_layout is not None
    return Mig(
        enabled=enabled,
        pending=enabled if gpu.mig_pending is None else gpu.mig_pending,
        devices=list_devices(gpu),
        profiles=list_profiles(model),
        devices_max=GEOMETRIES[model.mig.geometry].slices,
    )


def list_profiles(model: GpuModel) -> tuple[MigProfile, ...]:
    """The driver's MIG profiles of a model."""
    return tuple(_render_profile(shape) for shape in list_shapes(model))


def _render_profile(shape: MigShape) -> MigProfile:
    return MigProfile(
        name=shape.name,
        profile_id=shape.shape.profile_id,
        slice_count=shape.shape.slices,
        memory_mib=shape.row.memory_mib,
        multiprocessor_count=shape.row.multiprocessors,
        instances_max=shape.shape.instances,
        placements=shape.shape.starts,
        placement_size=shape.shape.size,
        copy_engine_count=shape.row.copy_engines,
        decoder_count=shape.row.decoders,
        encoder_count=shape.row.encoders,
        jpeg_count=shape.row.jpeg_engines,
        ofa_count=shape.row.ofa_engines,
    )


def _render_mig_device(gpu: GpuState, index: int, tenant: Tenant) -> MigDevice:
    placed = tenant.instance
    assert placed is not None
    shape, row = placed.shape.shape, placed.shape.row
    part = "" if tenant.compute_slices == shape.slices else f"{tenant.compute_slices}c."
    return MigDevice(
        uuid=MigUuid(tenant.uuid),
        parent=gpu.uuid,
        index=index,
        gpu_instance_id=placed.gpu_instance_id,
        compute_instance_id=tenant.compute_instance_id,
        profile=f"{part}{placed.shape.name}",
        attributes=MigAttributes(
            multiprocessor_count=row.multiprocessors * tenant.compute_slices // shape.slices,
            gpu_instance_slice_count=shape.slices,
            compute_instance_slice_count=tenant.compute_slices,
            memory_mib=row.memory_mib,
            shared_copy_engine_count=row.copy_engines,
            shared_decoder_count=row.decoders,
            shared_encoder_count=row.encoders,
            shared_jpeg_count=row.jpeg_engines,
            shared_ofa_count=row.ofa_engines,
        ),
        placement_start=placed.start,
        placement_size=shape.size,
    )
