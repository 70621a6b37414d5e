"""Work that comes and goes on one device: jobs with phases, so that readings look alive.

Owns a job's behaviour over time: load its data, compute, rest at a checkpoint, end.
Refuses heat and power: both follow from activity, in `gpu_state`.
"""

import math
from dataclasses import dataclass, field
from enum import StrEnum
from random import Random

from nodeagent.model.ids import DeviceUuid
from nodeagent_sim.gpus.mig_geometry import PlacedInstance

ACTIVITY_SETTLES_SECONDS = 1.5
MEMORY_SETTLES_SECONDS = 4.0
OWN_JOBS_BUSY_SHARE = 0.75
"""Probability that a device without a pod's decision starts at work."""


class Phase(StrEnum):
    """The phase of a job."""

    IDLE = "idle"
    LOADING = "loading"
    COMPUTING = "computing"
    RESTING = "resting"


@dataclass(slots=True)
class Tenant:
    """One device for work, whole GPU or MIG device, and the job on the device."""

    uuid: DeviceUuid
    random: Random
    memory_mib: int
    """Memory limit of a job on the device."""
    share: float = 1.0
    """Fraction of the GPU's multiprocessors."""
    instance: PlacedInstance | None = None
    compute_instance_id: int = 0
    compute_slices: int = 0
    """Compute slices of the GPU instance; 0 for a whole GPU."""
    phase: Phase = Phase.IDLE
    activity: float = 0.0
    """Utilization of this device, 0 to 1."""
    memory_used_mib: float = 0.0
    pid: int = 0
    training: bool = False
    intensity: float = 0.0
    """Utilization of the memory by the job, 0 to 1."""
    _level: float = 0.0
    _memory_level: float = 0.0
    _phase_left_seconds: float = 0.0
    _job_left_seconds: float = field(default=0.0)

    def settle(self) -> None:
        """Start in the middle of work rather than with every device cold."""
        if self.random.random() < OWN_JOBS_BUSY_SHARE:
            self._begin_job()
            self._enter(Phase.COMPUTING)
            self.activity = self._level
            self.memory_used_mib = self._memory_level
        else:
            self._phase_left_seconds = self.random.uniform(5, 60)

    def step(self, seconds: float, *, held: bool | None) -> None:
        """Let time pass; `held` says whether a pod holds the device, `None` leaves jobs to the simulation."""
        self._phase_left_seconds -= seconds
        self._job_left_seconds -= seconds
        if held is False:
            if self.phase is not Phase.IDLE:
                self.end_job()
        elif self.phase is Phase.IDLE:
            if held or self._phase_left_seconds <= 0:
                self._begin_job()
        elif self._job_left_seconds <= 0 and held is None:
            self.end_job()
        elif self._phase_left_seconds <= 0:
            self._enter(Phase.RESTING if self.phase is Phase.COMPUTING and self.training else Phase.COMPUTING)
        self._follow(seconds)

    def end_job(self) -> None:
        """The process exits, or was killed; the next job comes by itself."""
        self.phase, self.pid, self._level, self._memory_level = Phase.IDLE, 0, 0.0, 0.0
        self.memory_used_mib = 0.0
        self._phase_left_seconds = self.random.uniform(10, 90)

    def _begin_job(self) -> None:
        self.training = self.random.random() < 0.6
        self.pid = self.random.randrange(10_000, 4_000_000)
        self.intensity = self.random.uniform(0.3, 0.65)
        self._job_left_seconds = self.random.uniform(120, 1800)
        self._memory_level = self.memory_mib * self.random.uniform(0.45, 0.93)
        self._enter(Phase.LOADING)

    def _enter(self, phase: Phase) -> None:
        lengths = {Phase.LOADING: (2, 12), Phase.RESTING: (2, 8)}
        self.phase = phase
        self._phase_left_seconds = self.random.uniform(*lengths.get(phase, (30, 120)))
        if phase is Phase.COMPUTING:
            self._level = self.random.uniform(0.88, 1.0) if self.training else self.random.uniform(0.2, 0.8)
        else:
            self._level = self.random.uniform(0.02, 0.15)

    def _follow(self, seconds: float) -> None:
        """Readings lag behind the job's level, and wander."""
        if self.phase is Phase.COMPUTING and not self.training:
            drift = self.random.gauss(0.0, 0.06 * math.sqrt(min(seconds, 5.0)))
            self._level = min(0.95, max(0.05, self._level + drift))
        noise = self.random.uniform(-0.015, 0.015) if self._level else 0.0
        wanted = min(1.0, max(0.0, self._level + noise))
        self.activity += (wanted - self.activity) * -math.expm1(-seconds / ACTIVITY_SETTLES_SECONDS)
        if self.phase is not Phase.IDLE:
            rise = -math.expm1(-seconds / MEMORY_SETTLES_SECONDS)
            self.memory_used_mib += (self._memory_level - self.memory_used_mib) * rise
