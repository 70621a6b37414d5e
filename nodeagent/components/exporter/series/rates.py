"""Rates from totals: changes between two samples, per second; pure.

Owns the previous sample. A total that fell (driver reload, GPU reset, wrap) has no rate in that round.
"""

from collections.abc import Iterator

from msgspec import field

from nodeagent.model.ids import GpuUuid
from nodeagent.model.telemetry import GpuSample, NodeSample
from nodeagent.model.values import Value


class Rates(Value, frozen=True):
    """Rates per second since the previous sample; `None` without a total."""

    nvlink_transmit_kib: float | None = None
    nvlink_receive_kib: float | None = None
    pcie_transmit_bytes: float | None = None
    pcie_receive_bytes: float | None = None
    extras: dict[str, float] = field(default_factory=dict)
    """Of the extra readings that are totals of a link."""

    @property
    def nvlink_kib(self) -> float | None:
        """Both directions together."""
        if self.nvlink_transmit_kib is None or self.nvlink_receive_kib is None:
            return None
        return self.nvlink_transmit_kib + self.nvlink_receive_kib


NO_RATES = Rates()
_LINK_TOTALS = ("field/138/", "field/139/")


class RateCalculator:
    """Remembers one sample."""

    def __init__(self) -> None:
        self._before: dict[GpuUuid, GpuSample] = {}
        self._before_seconds = 0.0

    def update(self, sample: NodeSample) -> dict[GpuUuid, Rates]:
        """The rates up to a sample; a GPU's first reading counts as no change."""
        passed = sample.time_seconds - self._before_seconds
        rates = {gpu.uuid: _compare(self._before.get(gpu.uuid, gpu), gpu, passed) for gpu in sample.gpus}
        self._before = {gpu.uuid: gpu for gpu in sample.gpus}
        self._before_seconds = sample.time_seconds
        return rates


def _compare(before: GpuSample, now: GpuSample, passed_seconds: float) -> Rates:
    return Rates(
        nvlink_transmit_kib=_per_second(before.nvlink_transmit_kib, now.nvlink_transmit_kib, passed_seconds),
        nvlink_receive_kib=_per_second(before.nvlink_receive_kib, now.nvlink_receive_kib, passed_seconds),
        pcie_transmit_bytes=_per_second(before.pcie_transmit_bytes, now.pcie_transmit_bytes, passed_seconds),
        pcie_receive_bytes=_per_second(before.pcie_receive_bytes, now.pcie_receive_bytes, passed_seconds),
        extras=dict(_compare_extras(before, now, passed_seconds)) if now.extras else {},
    )


def _compare_extras(before: GpuSample, now: GpuSample, passed_seconds: float) -> Iterator[tuple[str, float]]:
    for name, total in now.extras.items():
        if name.startswith(_LINK_TOTALS):
            rate = _per_second(before.extras.get(name), total, passed_seconds)
            if rate is not None:
                yield name, rate


def _per_second(before: float | None, now: float | None, passed_seconds: float) -> float | None:
    if before is None or now is None or now < before or passed_seconds <= 0:
        return None
    return (now - before) / passed_seconds
