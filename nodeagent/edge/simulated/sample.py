"""One sample of the simulated node: the world's readings in the model's words. Pure.

What the real hardware does not give is `None` here too: utilisation of a partitioned GPU, hardware counters before
Hopper, a recovery action from a driver that does not know it.
"""

from nodeagent.edge.simulated.gpu_state import GpuState
from nodeagent.edge.simulated.hardware import MIB
from nodeagent.edge.simulated.load import Phase, Tenant
from nodeagent.edge.simulated.readout import COMPUTE_INSTANCE_ID
from nodeagent.edge.simulated.world import World
from nodeagent.model.ids import MigUuid
from nodeagent.model.telemetry import GpuSample, MigSample, NodeSample, ProcessSample, ProfilingSample

RECOVERY_ACTION_SINCE_BRANCH = 565
MEMORY_WARMER_CELSIUS = 6
IDLE_VIDEO_SHARE = 0.4


def render_sample(world: World, time_seconds: float, took_seconds: float = 0.0) -> NodeSample:
    """All GPUs at this moment of the world."""
    return NodeSample(
        time_seconds=time_seconds,
        took_seconds=took_seconds,
        gpus=tuple(_render_gpu(world, gpu) for gpu in world.listed),
        call_count=sum(1 if gpu.faults.lost else 24 + 4 * len(gpu.tenants) for gpu in world.listed),
    )


def _render_gpu(world: World, gpu: GpuState) -> GpuSample:
    if gpu.faults.lost:
        return GpuSample(uuid=gpu.uuid, lost=gpu.faults.lost)
    model, ecc = gpu.seat.model, gpu.ecc
    whole = gpu.mig_layout is None
    used_bytes = int(sum(tenant.memory_used_mib for tenant in gpu.tenants)) * MIB
    reserved_bytes = model.memory.reserved_mib * MIB
    temperature = int(gpu.temperature_celsius)
    idle = gpu.activity < 0.005
    return GpuSample(
        uuid=gpu.uuid,
        gpu_utilization_percent=_percent(gpu.activity) if whole else None,
        memory_utilization_percent=_percent(gpu.activity * gpu.tenants[0].intensity) if whole else None,
        encoder_utilization_percent=0 if whole else None,
        decoder_utilization_percent=0 if whole else None,
        jpeg_utilization_percent=0 if whole else None,
        ofa_utilization_percent=0 if whole else None,
        memory_total_bytes=model.total_bytes,
        memory_used_bytes=used_bytes,
        memory_free_bytes=model.total_bytes - reserved_bytes - used_bytes,
        memory_reserved_bytes=reserved_bytes,
        bar1_total_bytes=model.memory.bar1_mib * MIB,
        bar1_used_bytes=(1 + 2 * sum(tenant.pid > 0 for tenant in gpu.tenants)) * MIB,
        sm_clock_mhz=gpu.sm_clock_mhz,
        memory_clock_mhz=model.clocks.memory_idle_mhz if idle else model.clocks.memory_mhz,
        video_clock_mhz=int(model.clocks.video_mhz * (IDLE_VIDEO_SHARE if idle else 1.0)),
        performance_state=model.clocks.idle_performance_state if idle else 0,
        clock_event_reasons=gpu.clock_event_reasons,
        gpu_temperature_celsius=temperature,
        memory_temperature_celsius=_read_memory_celsius(gpu),
        slowdown_margin_celsius=model.thermal.maximum_celsius - temperature if model.has_thermal_margin else None,
        power_milliwatts=int(gpu.power_watts * 1000),
        power_limit_milliwatts=model.power.limit_watts * 1000,
        energy_millijoules=int(gpu.energy_joules * 1000),
        power_violation_nanoseconds=int(gpu.power_violation_seconds * 1e9),
        thermal_violation_nanoseconds=int(gpu.thermal_violation_seconds * 1e9),
        pcie_generation=model.pci.generation,
        pcie_width=model.pci.width,
        pcie_replay_count=gpu.pcie_replays,
        pcie_transmit_bytes=int(gpu.pcie_transmit_bytes),
        pcie_receive_bytes=int(gpu.pcie_receive_bytes),
        nvlink_transmit_kib=int(gpu.nvlink_transmit_kib) if model.nvlink else None,
        nvlink_receive_kib=int(gpu.nvlink_receive_kib) if model.nvlink else None,
        nvlink_replay_count=gpu.nvlink_errors if model.nvlink else None,
        nvlink_recovery_count=gpu.nvlink_errors if model.nvlink else None,
        nvlink_crc_flit_count=gpu.nvlink_errors if model.nvlink else None,
        nvlink_crc_data_count=gpu.nvlink_errors if model.nvlink else None,
        nvlinks_active=world.count_active_links(gpu) if model.nvlink else None,
        ecc_corrected_volatile=ecc.corrected,
        ecc_uncorrected_volatile=ecc.uncorrected,
        ecc_corrected_aggregate=ecc.corrected_aggregate,
        ecc_uncorrected_aggregate=ecc.uncorrected_aggregate,
        retired_pages_single_bit=None if model.memory.row_remapping else 0,
        retired_pages_double_bit=None if model.memory.row_remapping else ecc.remapped_uncorrectable,
        retired_pages_pending=None if model.memory.row_remapping else gpu.faults.remap_pending,
        remapped_rows_correctable=ecc.remapped_correctable if model.memory.row_remapping else None,
        remapped_rows_uncorrectable=ecc.remapped_uncorrectable if model.memory.row_remapping else None,
        remapped_rows_pending=gpu.faults.remap_pending if model.memory.row_remapping else None,
        remapped_rows_failed=gpu.faults.remap_failed if model.memory.row_remapping else None,
        recovery_action=gpu.faults.recovery_action if knows_recovery_action(world) else None,
        fabric_health_mask=world.profile.fabric.health_mask if world.profile.fabric else None,
        vgpu_license_active=False,
        profiling=_render_profiling(gpu) if model.has_profiling and whole else None,
        processes=_render_processes(gpu.tenants[0]) if whole else (),
        mig=() if whole else tuple(_render_mig(gpu, tenant) for tenant in gpu.tenants),
    )


def knows_recovery_action(world: World) -> bool:
    """Whether this driver gives a recovery action at all."""
    return int(world.driver.module_version.split(".", maxsplit=1)[0]) >= RECOVERY_ACTION_SINCE_BRANCH


def _percent(share: float) -> int:
    return min(100, max(0, round(share * 100)))


def _read_memory_celsius(gpu: GpuState) -> int | None:
    """HBM runs a little warmer than the core, and stays below its own limit unless the air is blocked."""
    limit = gpu.seat.model.thermal.memory_maximum_celsius
    if limit is None:
        return None
    return min(limit, int(gpu.temperature_celsius + MEMORY_WARMER_CELSIUS))


def _render_processes(tenant: Tenant) -> tuple[ProcessSample, ...]:
    if tenant.phase is Phase.IDLE:
        return ()
    partitioned = tenant.instance is not None
    return (
        ProcessSample(
            pid=tenant.pid,
            memory_used_bytes=int(tenant.memory_used_mib) * MIB,
            sm_utilization_percent=None if partitioned else _percent(tenant.activity),
            memory_utilization_percent=None if partitioned else _percent(tenant.activity * tenant.intensity),
            encoder_utilization_percent=None if partitioned else 0,
            decoder_utilization_percent=None if partitioned else 0,
            gpu_instance_id=tenant.instance.gpu_instance_id if tenant.instance else None,
            compute_instance_id=COMPUTE_INSTANCE_ID if partitioned else None,
        ),
    )


def _render_mig(gpu: GpuState, tenant: Tenant) -> MigSample:
    assert tenant.instance is not None
    total = tenant.memory_mib * MIB
    used = int(tenant.memory_used_mib) * MIB
    return MigSample(
        uuid=MigUuid(tenant.uuid),
        gpu_instance_id=tenant.instance.gpu_instance_id,
        compute_instance_id=COMPUTE_INSTANCE_ID,
        memory_used_bytes=used,
        memory_free_bytes=total - used,
        memory_reserved_bytes=0,
        memory_total_bytes=total,
        profiling=_render_ratios(tenant) if gpu.seat.model.has_profiling else None,
        processes=_render_processes(tenant),
    )


def _render_ratios(tenant: Tenant) -> ProfilingSample:
    """Counters of one device; a training job lives in the tensor pipes, another less so."""
    active = tenant.activity
    return ProfilingSample(
        graphics_engine_active=round(active, 4),
        sm_active=round(active * 0.9, 4),
        sm_occupancy=round(active * 0.4, 4),
        tensor_active=round(active * (0.55 if tenant.training else 0.2), 4),
        dram_active=round(active * tenant.intensity, 4),
        fp64_active=0.0,
        fp32_active=round(active * 0.12, 4),
        fp16_active=round(active * 0.06, 4),
    )


def _render_profiling(gpu: GpuState) -> ProfilingSample:
    ratios = _render_ratios(gpu.tenants[0])
    nvlink = gpu.nvlink_kib_per_second * 1024 if gpu.seat.model.nvlink else None
    return ProfilingSample(
        graphics_engine_active=ratios.graphics_engine_active,
        sm_active=ratios.sm_active,
        sm_occupancy=ratios.sm_occupancy,
        tensor_active=ratios.tensor_active,
        dram_active=ratios.dram_active,
        fp64_active=ratios.fp64_active,
        fp32_active=ratios.fp32_active,
        fp16_active=ratios.fp16_active,
        pcie_transmit_bytes_per_second=gpu.pcie_bytes_per_second * 0.4,
        pcie_receive_bytes_per_second=gpu.pcie_bytes_per_second,
        nvlink_transmit_bytes_per_second=nvlink,
        nvlink_receive_bytes_per_second=nvlink,
    )
