"""PCIe and NVLink that are slower than they can be."""

from typing import Any

from msgspec.structs import replace

from nodeagent.components.health.evidence.levels import judge_levels
from nodeagent.components.health.records import LevelMemory
from nodeagent.config.sections.hardware import HealthSettings
from nodeagent.model.gpu import Gpu
from nodeagent.model.telemetry import ProfilingSample
from tests.support.gpus import make_gpu
from tests.support.health import make_sample


class PollSchedule:
    """PollSchedule in a row at one GPU."""

    def __init__(self, gpu: Gpu | None = None, limits: HealthSettings | None = None) -> None:
        fast = make_gpu(0)
        self.gpu = gpu or replace(fast, pci=replace(fast.pci, link_generation_max=5, link_width_max=16))
        self.memory, self.limits = LevelMemory(), limits or HealthSettings()

    def look(self, **fields: Any) -> list[str]:
        look = judge_levels(self.gpu, make_sample(**fields), self.memory, 100.0, self.limits)
        self.memory = look.memory
        return [finding.key for finding in look.findings]


def test_a_link_that_is_slow_under_load_needs_attention() -> None:
    """Three looks under load; an idle GPU proves neither good nor bad, full speed ends it."""
    looks = PollSchedule()
    busy = {"gpu_utilization_percent": 80, "pcie_generation": 3}
    idle = {"gpu_utilization_percent": 0, "pcie_generation": 1}
    assert [looks.look(**busy), looks.look(**idle), looks.look(**busy)] == [[], [], []]
    assert looks.look(**busy) == ["pcie-slow"]
    assert looks.look(**idle) == ["pcie-slow"]
    assert looks.look(gpu_utilization_percent=80, pcie_generation=5) == []
    assert looks.look(**busy) == []


def test_an_idle_link_is_never_slow() -> None:
    """It saves power: however long it idles, nothing is said."""
    looks = PollSchedule()
    assert [looks.look(gpu_utilization_percent=0, pcie_generation=1) for _ in range(9)] == [[]] * 9


def test_a_partitioned_gpu_is_busy_by_its_counters() -> None:
    """It tells no utilisation; the hardware counters do."""
    looks = PollSchedule(limits=HealthSettings(pcie_degraded_polls=1))
    assert looks.look(pcie_generation=3) == []
    assert looks.look(pcie_generation=3, profiling=ProfilingSample()) == []
    assert looks.look(pcie_generation=3, profiling=ProfilingSample(graphics_engine_active=0.5)) == ["pcie-slow"]


def test_a_link_of_unknown_speed_is_not_judged() -> None:
    """Neither without a reading nor without a maximum."""
    assert PollSchedule().look(gpu_utilization_percent=80) == []
    assert PollSchedule(make_gpu(0)).look(gpu_utilization_percent=80, pcie_generation=1, pcie_width=1) == []


def test_lanes_are_judged_also_at_rest() -> None:
    """Fewer of them in three looks."""
    looks = PollSchedule()
    assert [looks.look(pcie_width=8), looks.look(pcie_width=8)] == [[], []]
    assert looks.look(pcie_width=8) == ["pcie-narrow"]
    assert looks.look(pcie_width=16) == []


def test_an_nvlink_slower_than_the_others_needs_attention() -> None:
    """Also when all are slower than they once were."""
    looks = PollSchedule()
    assert looks.look(nvlink_speed_min_mbps=26562, nvlink_speed_max_mbps=26562) == []
    assert looks.look(nvlink_speed_min_mbps=20000, nvlink_speed_max_mbps=26562) == ["nvlink-slow"]
    assert looks.look(nvlink_speed_min_mbps=20000, nvlink_speed_max_mbps=20000) == ["nvlink-slow"]
    assert looks.look() == []


def test_bit_errors_are_judged_where_a_limit_is_set() -> None:
    """The right limit depends on the product, so there is none unless somebody knows it."""
    assert PollSchedule().look(nvlink_effective_ber=1e-3) == []
    strict = PollSchedule(limits=HealthSettings(nvlink_bit_error_ratio=1e-12))
    assert strict.look(nvlink_effective_ber=1e-13) == []
    assert strict.look(nvlink_effective_ber=2e-12) == ["nvlink-error-rate"]
    assert strict.look() == []
