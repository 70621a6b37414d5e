"""What the driver said of each GPU lately: what led to what, as far as nearness in time tells.

Owns the rule that reports of one GPU in one burst follow from the first of them: an XID, then what the driver makes of
it. Refuses to remember for long: what a look at the hardware came after, and is old, explains nothing new.
"""

from typing import NamedTuple

BURST_SECONDS = 5.0


class _Burst(NamedTuple):
    first: int
    newest: int
    began_at: float


class Reports:
    """The last burst of each GPU, by the numbers under which the reports were passed on."""

    def __init__(self) -> None:
        self._bursts: dict[str, _Burst] = {}

    def find_cause(self, gpu: str, now: float) -> int | None:
        """What a report of this moment follows from."""
        burst = self._bursts.get(gpu)
        return burst.first if burst is not None and now - burst.began_at <= BURST_SECONDS else None

    def note(self, gpu: str, report: int, now: float) -> None:
        """Remember a report that was passed on."""
        burst = self._bursts.get(gpu)
        if burst is None or now - burst.began_at > BURST_SECONDS:
            burst = _Burst(report, report, now)
        self._bursts[gpu] = burst._replace(newest=report)

    def newest(self) -> dict[str, int]:
        """By GPU, the report that the next look at the hardware explains itself by."""
        return {gpu: burst.newest for gpu, burst in self._bursts.items()}

    def forget_old(self, now: float) -> None:
        """After a look: what is past its burst has been looked at."""
        self._bursts = {gpu: burst for gpu, burst in self._bursts.items() if now - burst.began_at <= BURST_SECONDS}
