"""Evidence about GPUs for tests of health, made of as little as a test cares about."""

from typing import Any

from msgspec.structs import replace

from nodeagent.components.health.decide import Moment, XidSeen, note_poll, note_xid
from nodeagent.components.health.evidence.findings import PollResult
from nodeagent.components.health.evidence.levels import judge_levels
from nodeagent.components.health.evidence.xids import find_xid
from nodeagent.components.health.records import GpuRecord, worse
from nodeagent.config.sections.hardware import HealthSettings
from nodeagent.model.gpu import Gpu
from nodeagent.model.health import Verdict
from nodeagent.model.telemetry import GpuSample
from tests.support.gpus import gpu_uuid, make_gpu

SETTINGS = HealthSettings()


def make_sample(index: int = 0, **fields: Any) -> GpuSample:
    """A sample of a living GPU whose driver wants nothing."""
    return GpuSample(**{"uuid": gpu_uuid(index), "gpu_temperature_celsius": 40, "recovery_action": 0, **fields})


def moment(at: float) -> Moment:
    return Moment(at=at, wall=1_700_000_000.0 + at)


class Gpu0:
    """One GPU's record, moved on by evidence at five-second looks."""

    def __init__(self, gpu: Gpu | None = None, policy: HealthSettings = SETTINGS) -> None:
        self.gpu = gpu or make_gpu(0)
        self.record = GpuRecord(gpu=self.gpu.uuid)
        self.policy = policy
        self.at = 0.0

    @property
    def verdict(self) -> Verdict:
        """The worst of all open faults."""
        verdict = Verdict.HEALTHY
        for fault in self.record.faults:
            verdict = worse(verdict, fault.verdict)
        return verdict

    @property
    def keys(self) -> list[str]:
        return sorted(fault.key for fault in self.record.faults)

    def xid(self, number: int, **seen: Any) -> None:
        entry = seen.pop("entry", find_xid(number))
        self.record = note_xid(
            self.record, XidSeen(**{"entry": entry, "device": self.gpu.uuid, **seen}), moment(self.at)
        )

    def look(self, times: int = 1, *, is_extra: bool = False, **fields: Any) -> PollResult:
        """Poll a living GPU with these readings."""
        look = PollResult()
        for _ in range(times):
            self.at += 5
            look = self.see(make_sample(**fields), is_extra=is_extra)
        return look

    def see(self, sample: GpuSample | None, *, is_extra: bool = False) -> PollResult:
        look = judge_levels(self.gpu, sample, self.record.levels, self.at, self.policy)
        self.record = note_poll(self.record, replace(look, is_extra=is_extra), moment(self.at), self.policy)
        return look
