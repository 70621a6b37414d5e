"""The present state of one simulated GPU: readings, counters, and faults.

Owns the physics: power follows activity, heat follows power, clocks give way to both.
Refuses time of its own: `step` gets the elapsed seconds.
"""

import math
from dataclasses import dataclass, field
from random import Random

from nodeagent.model.gpu import ComputeMode
from nodeagent.model.ids import GpuUuid
from nodeagent_sim.gpus.containers import FractionWork
from nodeagent_sim.gpus.load import Tenant
from nodeagent_sim.gpus.mig_geometry import PlacedInstance
from nodeagent_sim.gpus.profile import Seat

REASON_IDLE = 0x1
REASON_SOFTWARE_POWER_CAP = 0x4
REASON_HARDWARE_SLOWDOWN = 0x8
REASON_HARDWARE_THERMAL = 0x40

IDLE_ACTIVITY = 0.005
"""Activity below which the driver calls a GPU idle."""
PEAK_OVER_LIMIT = 1.12
"""Full activity asks for more power than the limit gives, as training on real boards does."""
POWER_SETTLES_SECONDS = 1.0
HEAT_SETTLES_SECONDS = 40.0
THROTTLED_SHARE = 0.5
CLOCK_STEP_MHZ = 15
PCIE_BYTES_PER_SECOND = 985_000_000
"""Per lane at generation 3; each generation doubles the rate."""
PCIE_IDLE_BYTES_PER_SECOND = 400_000
PCIE_LOAD = 0.08
TRANSMIT_SHARE = 0.4
"""Results are smaller than data."""
LINK_LOAD = 0.3
"""Share of a link's bandwidth that a fully busy job uses."""
CORRECTED_ERROR_EVERY_SECONDS = 12 * 3600.0
REPLAY_EVERY_SECONDS = 24 * 3600.0


@dataclass(slots=True)
class GpuFaults:
    """Injected faults that last until cleared."""

    lost: str = ""
    """Why the GPU does not answer; empty for an answering GPU."""
    hidden: bool = False
    """On the PCI bus, but not listed by the driver since the driver's loading."""
    unplugged: bool = False
    thermal: bool = False
    links_down: set[int] = field(default_factory=set)
    recovery_action: int = 0
    remap_pending: bool = False
    remap_failed: bool = False
    foreign_mib: int = 0
    """Memory of a program without an allocation."""


@dataclass(slots=True)
class EccCounters:
    """Errors since the last reset, and over the life of the board."""

    corrected: int = 0
    uncorrected: int = 0
    corrected_aggregate: int = 0
    uncorrected_aggregate: int = 0
    remapped_correctable: int = 0
    remapped_uncorrectable: int = 0


@dataclass(slots=True)
class GpuState:
    """A GPU in its seat."""

    seat: Seat
    uuid: GpuUuid
    random: Random
    tenants: list[Tenant] = field(default_factory=list)
    parts: dict[FractionWork, Tenant] = field(default_factory=dict)
    """Jobs of containers with a fraction of the GPU."""
    mig_layout: tuple[str, ...] | None = None
    """Profile names while MIG is on, `None` while it is off."""
    mig_pending: bool | None = None
    """The mode after the next reset, if different from the present mode."""
    instances: dict[int, PlacedInstance] = field(default_factory=dict)
    """GPU instances by id, also instances without a MIG device."""
    layout_number: int = 0
    compute_mode: ComputeMode = ComputeMode.DEFAULT
    persistence_mode: bool = True
    time_slice: int = 0
    """The driver's number of the time slice; 0 is the driver's default."""
    faults: GpuFaults = field(default_factory=GpuFaults)
    ecc: EccCounters = field(default_factory=EccCounters)
    activity: float = 0.0
    power_watts: float = 0.0
    temperature_celsius: float = 0.0
    sm_clock_mhz: int = 0
    clock_event_reasons: int = REASON_IDLE
    energy_joules: float = 0.0
    power_violation_seconds: float = 0.0
    thermal_violation_seconds: float = 0.0
    pcie_transmit_bytes: float = 0.0
    pcie_receive_bytes: float = 0.0
    pcie_replays: int = 0
    nvlink_errors: int = 0
    """Replays, recoveries and CRC errors go up together here."""
    nvlink_transmit_kib: float = 0.0
    nvlink_receive_kib: float = 0.0
    pcie_bytes_per_second: float = 0.0
    nvlink_kib_per_second: float = 0.0

    @property
    def workers(self) -> list[Tenant]:
        """Every job on the GPU, with the whole GPU, a MIG device or a fraction."""
        return [*self.tenants, *self.parts.values()]

    def end_jobs(self) -> None:
        """End every process on the GPU."""
        for worker in self.workers:
            worker.end_job()

    def settle(self, *, works: bool) -> None:
        """Begin as a machine that has been up for days, at work or not."""
        model = self.seat.model
        for tenant in self.tenants if works else ():
            tenant.settle()
        self._measure_activity()
        self.power_watts, clock_share = self._plan_power()
        self._set_clock(clock_share)
        self.temperature_celsius = self._equilibrium_celsius()
        self.energy_joules = self.random.uniform(1, 20) * 86_400 * 0.5 * model.power.limit_watts

    def step(self, seconds: float, active_links: int) -> None:
        """Let time pass for the board, after the tenants."""
        self._measure_activity()
        demand, clock_share = self._plan_power()
        jitter = self.random.uniform(0.995, 1.005)
        self.power_watts += (demand * jitter - self.power_watts) * -math.expm1(-seconds / POWER_SETTLES_SECONDS)
        self.power_watts = min(self.power_watts, float(self.seat.model.power.limit_watts))
        heat = -math.expm1(-seconds / HEAT_SETTLES_SECONDS)
        self.temperature_celsius += (self._equilibrium_celsius() - self.temperature_celsius) * heat
        self._set_clock(clock_share)
        self._count(seconds, active_links)

    def overheat(self) -> None:
        """Stop the air flow: the GPU is hot at once, and stays hot."""
        self.faults.thermal = True
        self.temperature_celsius = self._equilibrium_celsius()
        _, clock_share = self._plan_power()
        self._set_clock(clock_share)

    def record_errors(self, *, corrected: int = 0, uncorrected: int = 0) -> None:
        """Memory errors, in both the volatile and the lifetime count."""
        self.ecc.corrected += corrected
        self.ecc.corrected_aggregate += corrected
        self.ecc.uncorrected += uncorrected
        self.ecc.uncorrected_aggregate += uncorrected

    def reset(self) -> None:
        """Undo faults as a GPU reset does: lifetime counts, blocked air and failed remaps stay."""
        lasting = self.faults
        self.faults = GpuFaults(unplugged=lasting.unplugged, thermal=lasting.thermal, remap_failed=lasting.remap_failed)
        self.ecc.corrected = self.ecc.uncorrected = 0
        self.end_jobs()

    def _measure_activity(self) -> None:
        self.activity = min(1.0, sum(worker.activity * worker.share for worker in self.workers))

    def _plan_power(self) -> tuple[float, float]:
        """Watts that the board draws once settled, and the clock as a fraction of the top clock. Sets the reasons."""
        power = self.seat.model.power
        if self.activity < IDLE_ACTIVITY:
            self.clock_event_reasons = REASON_IDLE
            idle_share = self.seat.model.clocks.sm_idle_mhz / self.seat.model.clocks.sm_mhz
            demand, share = float(power.idle_watts), idle_share
        else:
            demand = power.idle_watts + (power.limit_watts * PEAK_OVER_LIMIT - power.idle_watts) * self.activity**0.85
            share, self.clock_event_reasons = 1.0, 0
            if demand > power.limit_watts:
                share, demand = math.sqrt(power.limit_watts / demand), float(power.limit_watts)
                self.clock_event_reasons = REASON_SOFTWARE_POWER_CAP
        if self.faults.thermal:
            self.clock_event_reasons = REASON_HARDWARE_SLOWDOWN | REASON_HARDWARE_THERMAL
            demand, share = max(power.idle_watts, demand * THROTTLED_SHARE), min(share, THROTTLED_SHARE)
        return demand, share

    def _equilibrium_celsius(self) -> float:
        thermal, power = self.seat.model.thermal, self.seat.model.power
        if self.faults.thermal:
            return thermal.slowdown_celsius + 0.5
        load = max(0.0, self.power_watts - power.idle_watts) / (power.limit_watts - power.idle_watts)
        # A degree or two apart by seat, as air warms on its way through the chassis.
        return thermal.idle_celsius + (self.seat.index % 4) * 0.7 + load * (thermal.busy_celsius - thermal.idle_celsius)

    def _set_clock(self, share: float) -> None:
        clocks = self.seat.model.clocks
        if share >= 1.0:
            self.sm_clock_mhz = clocks.sm_mhz
        else:
            steps = round(clocks.sm_mhz * share / CLOCK_STEP_MHZ)
            self.sm_clock_mhz = max(clocks.sm_idle_mhz, steps * CLOCK_STEP_MHZ)

    def _count(self, seconds: float, active_links: int) -> None:
        """Advance the counters, which only grow."""
        model = self.seat.model
        self.energy_joules += self.power_watts * seconds
        if self.clock_event_reasons & REASON_SOFTWARE_POWER_CAP:
            self.power_violation_seconds += seconds
        if self.clock_event_reasons & REASON_HARDWARE_THERMAL:
            self.thermal_violation_seconds += seconds
        bandwidth = PCIE_BYTES_PER_SECOND * model.pci.width * 2.0 ** (model.pci.generation - 3)
        self.pcie_bytes_per_second = PCIE_IDLE_BYTES_PER_SECOND + bandwidth * PCIE_LOAD * self.activity
        self.pcie_transmit_bytes += self.pcie_bytes_per_second * TRANSMIT_SHARE * seconds
        self.pcie_receive_bytes += self.pcie_bytes_per_second * seconds
        if model.nvlink is not None:
            per_link = model.nvlink.speed_mbps * 1_000_000 / 1024 * LINK_LOAD
            self.nvlink_kib_per_second = active_links * per_link * self.activity
            self.nvlink_transmit_kib += self.nvlink_kib_per_second * seconds
            self.nvlink_receive_kib += self.nvlink_kib_per_second * seconds
        if self.random.random() < seconds / CORRECTED_ERROR_EVERY_SECONDS:
            self.record_errors(corrected=1)
        if self.random.random() < seconds / REPLAY_EVERY_SECONDS:
            self.pcie_replays += 1
