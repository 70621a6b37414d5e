"""One sample of the simulated node: the world's readings in the model's vocabulary. Pure.

Readings that real hardware lacks are `None` here too: utilisation of a partitioned GPU, hardware counters before
Hopper, a recovery action from an old driver.
"""

from msgspec.structs import replace

from nodeagent.model.ids import MigUuid
from nodeagent.model.telemetry import GpuSample, MigSample, NodeSample, ProcessSample, ProfilingSample
from nodeagent_sim.gpus.extras import render_extras
from nodeagent_sim.gpus.gpu_state import IDLE_ACTIVITY, TRANSMIT_SHARE, GpuState
from nodeagent_sim.gpus.hardware import MIB
from nodeagent_sim.gpus.load import Phase, Tenant
from nodeagent_sim.gpus.readout import HEALTHY_FABRIC
from nodeagent_sim.gpus.world import FOREIGN_PID, World

RECOVERY_ACTION_SINCE_BRANCH = 565
MEMORY_WARMER_CELSIUS = 6
AMPERE, HOPPER = (8, 0), (9, 0)
FIFTH_NVLINK = 5
IDLE_VIDEO_SHARE = 0.4


def render_sample(
    world: World, time_seconds: float, took_seconds: float = 0.0, extras: tuple[str, ...] = ()
) -> NodeSample:
    """All GPUs at this moment of the world, with the extra readings asked for."""
    return NodeSample(
        time_seconds=time_seconds,
        took_seconds=took_seconds,
        gpus=tuple(_add_extras(_render_gpu(world, gpu), gpu, extras) for gpu in world.listed),
        call_count=sum(1 if gpu.faults.lost else 24 + 4 * len(gpu.tenants) for gpu in world.listed),
    )


def _render_gpu(world: World, gpu: GpuState) -> GpuSample:
    """Readings first, then the groups of counters."""
    if gpu.faults.lost:
        return GpuSample(uuid=gpu.uuid, lost=gpu.faults.lost)
    return _add_links(_add_errors(_add_work(_render_board(gpu), gpu), gpu, world), gpu, world)


def _add_extras(sample: GpuSample, gpu: GpuState, names: tuple[str, ...]) -> GpuSample:
    return replace(sample, extras=render_extras(gpu, sample, names)) if names and not sample.lost else sample


def _render_board(gpu: GpuState) -> GpuSample:
    """Clocks, heat and power."""
    model = gpu.seat.model
    clocks, thermal = model.clocks, model.thermal
    temperature = int(gpu.temperature_celsius)
    idle = gpu.activity < IDLE_ACTIVITY
    return GpuSample(
        uuid=gpu.uuid,
        sm_clock_mhz=gpu.sm_clock_mhz,
        memory_clock_mhz=clocks.memory_idle_mhz if idle else clocks.memory_mhz,
        video_clock_mhz=int(clocks.video_mhz * (IDLE_VIDEO_SHARE if idle else 1.0)),
        performance_state=clocks.idle_performance_state if idle else 0,
        clock_event_reasons=gpu.clock_event_reasons,
        gpu_temperature_celsius=temperature,
        memory_temperature_celsius=_read_memory_celsius(gpu),
        slowdown_margin_celsius=thermal.maximum_celsius - temperature if model.has_thermal_margin else None,
        power_milliwatts=int(gpu.power_watts * 1000),
        power_limit_milliwatts=model.power.limit_watts * 1000,
        energy_millijoules=int(gpu.energy_joules * 1000),
        power_violation_nanoseconds=int(gpu.power_violation_seconds * 1e9),
        thermal_violation_nanoseconds=int(gpu.thermal_violation_seconds * 1e9),
        vgpu_license_active=False,
    )


def _add_work(sample: GpuSample, gpu: GpuState) -> GpuSample:
    """Memory and processes; a partitioned GPU has readings of its partitions instead of its own."""
    model = gpu.seat.model
    reserved_bytes = model.memory.reserved_mib * MIB
    wanted_bytes = int(sum(worker.memory_used_mib for worker in gpu.workers) + gpu.faults.foreign_mib) * MIB
    used_bytes = min(wanted_bytes, model.total_bytes - reserved_bytes)
    sample = replace(
        sample,
        memory_total_bytes=model.total_bytes,
        memory_used_bytes=used_bytes,
        memory_free_bytes=model.total_bytes - reserved_bytes - used_bytes,
        memory_reserved_bytes=reserved_bytes,
        bar1_total_bytes=model.memory.bar1_mib * MIB,
        bar1_used_bytes=(1 + 2 * sum(worker.pid > 0 for worker in gpu.workers)) * MIB,
    )
    if gpu.mig_layout is not None:
        return replace(sample, mig=tuple(_render_mig(gpu, tenant) for tenant in gpu.tenants))
    return replace(
        sample,
        gpu_utilization_percent=_percent(gpu.activity),
        memory_utilization_percent=_percent(gpu.activity * _find_busiest(gpu).intensity),
        encoder_utilization_percent=0,
        decoder_utilization_percent=0,
        jpeg_utilization_percent=0,
        ofa_utilization_percent=0,
        profiling=_render_profiling(gpu) if model.has_profiling else None,
        processes=(
            *_render_foreign(gpu),
            *(process for worker in gpu.workers for process in _render_processes(worker)),
        ),
    )


def _add_errors(sample: GpuSample, gpu: GpuState, world: World) -> GpuSample:
    """Memory errors: rows where the memory is remapped, pages where it is retired."""
    ecc, faults = gpu.ecc, gpu.faults
    sample = replace(
        sample,
        ecc_corrected_volatile=ecc.corrected,
        ecc_uncorrected_volatile=ecc.uncorrected,
        ecc_corrected_aggregate=ecc.corrected_aggregate,
        ecc_uncorrected_aggregate=ecc.uncorrected_aggregate,
        sram_threshold_exceeded=False if gpu.seat.model.compute_capability >= AMPERE else None,
        memory_unrepairable=False if gpu.seat.model.compute_capability >= HOPPER else None,
        recovery_action=faults.recovery_action if knows_recovery_action(world) else None,
    )
    if gpu.seat.model.memory.row_remapping:
        return replace(
            sample,
            remapped_rows_correctable=ecc.remapped_correctable,
            remapped_rows_uncorrectable=ecc.remapped_uncorrectable,
            remapped_rows_pending=faults.remap_pending,
            remapped_rows_failed=faults.remap_failed,
        )
    return replace(
        sample,
        retired_pages_single_bit=ecc.remapped_correctable,
        retired_pages_double_bit=ecc.remapped_uncorrectable,
        retired_pages_pending=faults.remap_pending,
    )


def _add_links(sample: GpuSample, gpu: GpuState, world: World) -> GpuSample:
    """PCIe, and NVLink where the model has NVLink."""
    model = gpu.seat.model
    sample = replace(
        sample,
        pcie_generation=model.pci.generation,
        pcie_width=model.pci.width,
        pcie_replay_count=gpu.pcie_replays,
        pcie_transmit_bytes=int(gpu.pcie_transmit_bytes),
        pcie_receive_bytes=int(gpu.pcie_receive_bytes),
        fabric_health_mask=world.profile.fabric.health_mask if world.profile.fabric else None,
        fabric_health_summary=HEALTHY_FABRIC if world.profile.fabric else None,
    )
    if model.compute_capability >= HOPPER:
        sample = replace(sample, pcie_correctable_error_count=0, pcie_non_fatal_error_count=0, pcie_fatal_error_count=0)
    if model.nvlink is None:
        return sample
    active = world.count_active_links(gpu)
    sample = replace(
        sample,
        nvlink_transmit_kib=int(gpu.nvlink_transmit_kib),
        nvlink_receive_kib=int(gpu.nvlink_receive_kib),
        nvlinks_active=active,
        nvlink_speed_min_mbps=model.nvlink.speed_mbps if active else None,
        nvlink_speed_max_mbps=model.nvlink.speed_mbps if active else None,
    )
    return _add_link_errors(sample, gpu.nvlink_errors, is_fifth=model.nvlink.version >= FIFTH_NVLINK)


def _add_link_errors(sample: GpuSample, errors: int, *, is_fifth: bool) -> GpuSample:
    """The counters of the fifth generation of NVLink differ from earlier generations' counters."""
    if not is_fifth:
        return replace(
            sample,
            nvlink_replay_count=errors,
            nvlink_recovery_count=errors,
            nvlink_crc_flit_count=errors,
            nvlink_crc_data_count=errors,
        )
    return replace(
        sample,
        nvlink_malformed_packet_count=0,
        nvlink_buffer_overrun_count=0,
        nvlink_receive_error_count=0,
        nvlink_remote_error_count=0,
        nvlink_general_error_count=0,
        nvlink_integrity_error_count=0,
        nvlink_transmit_discard_count=0,
        nvlink_recovered_count=0,
        nvlink_recovery_failed_count=errors,
        nvlink_recovery_event_count=errors,
        nvlink_effective_error_count=0,
        nvlink_symbol_error_count=0,
        nvlink_effective_ber=0.0,
        nvlink_symbol_ber=0.0,
    )


def knows_recovery_action(world: World) -> bool:
    """Whether this driver reports a recovery action at all."""
    return int(world.driver.module_version.split(".", maxsplit=1)[0]) >= RECOVERY_ACTION_SINCE_BRANCH


def _percent(share: float) -> int:
    return min(100, max(0, round(share * 100)))


def _read_memory_celsius(gpu: GpuState) -> int | None:
    """HBM is a little warmer than the core, and never above its own limit."""
    limit = gpu.seat.model.thermal.memory_maximum_celsius
    if limit is None:
        return None
    return min(limit, int(gpu.temperature_celsius + MEMORY_WARMER_CELSIUS))


def _find_busiest(gpu: GpuState) -> Tenant:
    """The job that uses the most of a GPU."""
    return max(gpu.workers, key=lambda worker: worker.activity * worker.share)


def _render_foreign(gpu: GpuState) -> tuple[ProcessSample, ...]:
    if not gpu.faults.foreign_mib:
        return ()
    pid, memory_bytes = FOREIGN_PID + gpu.seat.index, gpu.faults.foreign_mib * MIB
    return (ProcessSample(pid=pid, memory_used_bytes=memory_bytes, sm_utilization_percent=0),)


def _render_processes(tenant: Tenant) -> tuple[ProcessSample, ...]:
    if tenant.phase is Phase.IDLE:
        return ()
    partitioned, activity = tenant.instance is not None, tenant.activity * tenant.share
    return (
        ProcessSample(
            pid=tenant.pid,
            memory_used_bytes=int(tenant.memory_used_mib) * MIB,
            sm_utilization_percent=None if partitioned else _percent(activity),
            memory_utilization_percent=None if partitioned else _percent(activity * tenant.intensity),
            encoder_utilization_percent=None if partitioned else 0,
            decoder_utilization_percent=None if partitioned else 0,
            gpu_instance_id=tenant.instance.gpu_instance_id if tenant.instance else None,
            compute_instance_id=tenant.compute_instance_id if partitioned else None,
        ),
    )


def _render_mig(gpu: GpuState, tenant: Tenant) -> MigSample:
    assert tenant.instance is not None
    total = tenant.memory_mib * MIB
    used = int(tenant.memory_used_mib) * MIB
    return MigSample(
        uuid=MigUuid(tenant.uuid),
        gpu_instance_id=tenant.instance.gpu_instance_id,
        compute_instance_id=tenant.compute_instance_id,
        memory_used_bytes=used,
        memory_free_bytes=total - used,
        memory_reserved_bytes=0,
        memory_total_bytes=total,
        profiling=_render_ratios(tenant, tenant.activity) if gpu.seat.model.has_profiling else None,
        processes=_render_processes(tenant),
    )


def _render_ratios(tenant: Tenant, active: float) -> ProfilingSample:
    """Counters of one device; a training job uses the tensor cores, other jobs less so."""
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
    """The ratios of the GPU as the only device, and the rates of a whole GPU."""
    nvlink = gpu.nvlink_kib_per_second * 1024 if gpu.seat.model.nvlink else None
    return replace(
        _render_ratios(_find_busiest(gpu), gpu.activity),
        pcie_transmit_bytes_per_second=gpu.pcie_bytes_per_second * TRANSMIT_SHARE,
        pcie_receive_bytes_per_second=gpu.pcie_bytes_per_second,
        nvlink_transmit_bytes_per_second=nvlink,
        nvlink_receive_bytes_per_second=nvlink,
    )
