"""The XID errors since the agent's start; pure.

Owns counts, times and recent XIDs for windows. An XID belongs to a GPU instance where the driver names one, or else to
the whole GPU.
"""

from collections import Counter, deque
from dataclasses import dataclass

from nodeagent.model.events import XidReported
from nodeagent.model.ids import GpuUuid

RECENT_MAX = 1024
"""Events kept for windows, a GPU: a storm beyond that is counted by the totals and cut in the window."""


@dataclass(frozen=True, slots=True)
class SeenXid:
    """An XID with its time."""

    xid: int
    time_seconds: float
    gpu_instance_id: int | None = None


class XidHistory:
    """Remembers every XID by GPU."""

    def __init__(self) -> None:
        self._recent: dict[GpuUuid, deque[SeenXid]] = {}
        self._last: dict[tuple[GpuUuid, int | None], SeenXid] = {}
        self._totals: dict[GpuUuid, Counter[int]] = {}
        self._newest: dict[tuple[GpuUuid, int], float] = {}
        self.revision = 0
        """Rises with each note, so that what was rendered from this history can be known to be old."""

    def note(self, event: XidReported, time_seconds: float) -> None:
        """Count one XID."""
        seen = SeenXid(event.xid, time_seconds, event.gpu_instance_id)
        self._recent.setdefault(event.gpu, deque(maxlen=RECENT_MAX)).append(seen)
        self._last[event.gpu, event.gpu_instance_id] = seen
        self._totals.setdefault(event.gpu, Counter())[event.xid] += 1
        self._newest[event.gpu, event.xid] = time_seconds
        self.revision += 1

    def find_last(self, gpu: GpuUuid, gpu_instance_id: int | None = None) -> SeenXid | None:
        """The last XID of the instance, or of the GPU as a whole."""
        return self._last.get((gpu, gpu_instance_id))

    def count_since(self, gpu: GpuUuid, since_seconds: float, gpu_instance_id: int | None = None) -> Counter[int]:
        """How many of each XID, of the instance or of the GPU as a whole."""
        return Counter(
            seen.xid
            for seen in self._recent.get(gpu, ())
            if seen.time_seconds >= since_seconds and seen.gpu_instance_id == gpu_instance_id
        )

    def list_recent(self, gpu: GpuUuid, since_seconds: float) -> frozenset[int]:
        """The recent XIDs of the GPU and of its instances."""
        return frozenset(seen.xid for seen in self._recent.get(gpu, ()) if seen.time_seconds >= since_seconds)

    def totals(self, gpu: GpuUuid) -> list[tuple[int, int, float]]:
        """Each XID of the GPU with the count and the time of the newest."""
        return [(xid, count, self._newest[gpu, xid]) for xid, count in sorted(self._totals.get(gpu, {}).items())]
