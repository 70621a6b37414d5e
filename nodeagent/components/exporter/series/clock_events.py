"""How often clocks were held back within a window, by reason; pure.

Owns the window. Counts samples, as DCGM exporter does, so the figure grows with the sampling rate.
Counts are kept in slices of the window, so that memory does not grow with its length.
"""

from collections import deque

from nodeagent.model.ids import GpuUuid

REASONS = {
    "gpu_idle": 0x1,
    "clocks_setting": 0x2,
    "power_cap": 0x4,
    "hw_slowdown": 0x8,
    "sync_boost": 0x10,
    "sw_thermal": 0x20,
    "hw_thermal": 0x40,
    "hw_power_brake": 0x80,
    "display_clocks": 0x100,
}
SLICES = 300


class _Window:
    """One GPU's counts, by slice and in sum."""

    def __init__(self) -> None:
        self.slices: deque[tuple[int, list[int]]] = deque()
        self.totals = [0] * len(REASONS)

    def add(self, number: int, mask: int) -> None:
        """Add one sample to a slice."""
        self.drop(number)
        if not self.slices or self.slices[-1][0] != number:
            self.slices.append((number, [0] * len(REASONS)))
        counts = self.slices[-1][1]
        for position, bit in enumerate(REASONS.values()):
            if mask & bit:
                counts[position] += 1
                self.totals[position] += 1

    def drop(self, number: int) -> None:
        """Drop slices before the window that ends with a slice."""
        while self.slices and self.slices[0][0] <= number - SLICES:
            _, counts = self.slices.popleft()
            self.totals = [total - count for total, count in zip(self.totals, counts, strict=True)]


class ClockEvents:
    """Remembers the reasons of recent samples."""

    def __init__(self) -> None:
        self._windows: dict[GpuUuid, _Window] = {}
        self._window_seconds = 300.0

    def set_window(self, window_seconds: float) -> None:
        """Another window starts empty: slices of another width cannot be compared."""
        if window_seconds != self._window_seconds:
            self._window_seconds = window_seconds
            self._windows.clear()

    def note(self, gpu: GpuUuid, time_seconds: float, mask: int) -> None:
        """One sample's bit mask."""
        self._windows.setdefault(gpu, _Window()).add(self._slice_at(time_seconds), mask)

    def count(self, gpu: GpuUuid, now_seconds: float) -> dict[str, int]:
        """Samples with each reason within the window, zero for an absent reason; empty without samples."""
        window = self._windows.get(gpu)
        if window is None:
            return {}
        window.drop(self._slice_at(now_seconds))
        return dict(zip(REASONS, window.totals, strict=True))

    def forget(self, keep: frozenset[GpuUuid]) -> None:
        """Drop GPUs outside the given set."""
        for gpu in self._windows.keys() - keep:
            del self._windows[gpu]

    def _slice_at(self, time_seconds: float) -> int:
        return int(time_seconds * SLICES / self._window_seconds)
