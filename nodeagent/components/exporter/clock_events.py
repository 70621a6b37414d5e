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


class ClockEvents:
    """Remembers the reasons of recent samples."""

    def __init__(self) -> None:
        self._slices: dict[GpuUuid, deque[tuple[int, list[int]]]] = {}
        self._window_seconds = 300.0

    def set_window(self, window_seconds: float) -> None:
        """Another window starts empty: slices of another width cannot be compared."""
        if window_seconds != self._window_seconds:
            self._window_seconds = window_seconds
            self._slices.clear()

    def note(self, gpu: GpuUuid, time_seconds: float, mask: int) -> None:
        """One sample's bit mask."""
        number = self._slice_at(time_seconds)
        slices = self._slices.setdefault(gpu, deque())
        if not slices or slices[-1][0] != number:
            slices.append((number, [0] * len(REASONS)))
            while slices[0][0] <= number - SLICES:
                slices.popleft()
        counts = slices[-1][1]
        for position, bit in enumerate(REASONS.values()):
            counts[position] += mask & bit != 0

    def count(self, gpu: GpuUuid, now_seconds: float) -> dict[str, int]:
        """Samples with each reason within the window, zero for those that did not occur; empty if nothing is known."""
        if gpu not in self._slices:
            return {}
        oldest = self._slice_at(now_seconds) - SLICES
        living = [counts for number, counts in self._slices[gpu] if number > oldest]
        return {name: sum(counts[position] for counts in living) for position, name in enumerate(REASONS)}

    def forget(self, keep: frozenset[GpuUuid]) -> None:
        """Drop GPUs that are gone."""
        for gpu in self._slices.keys() - keep:
            del self._slices[gpu]

    def _slice_at(self, time_seconds: float) -> int:
        return int(time_seconds * SLICES / self._window_seconds)
