"""The driver's recent reports of each GPU, as causes of later reports by nearness in time.

Owns the rule that reports of one GPU in one burst follow from the first report: an XID, then the driver's consequences.
Refuses a long memory: an old report that a scan has followed explains no new change.
"""

from typing import NamedTuple

BURST_SECONDS = 5.0


class _Burst(NamedTuple):
    first: int
    newest: int
    began_at: float


class Reports:
    """The last burst of each GPU, by the sequence numbers of the published reports."""

    def __init__(self) -> None:
        self._bursts: dict[str, _Burst] = {}

    def find_cause(self, gpu: str, now: float) -> int | None:
        """The cause of a report at this time."""
        burst = self._bursts.get(gpu)
        return burst.first if burst is not None and now - burst.began_at <= BURST_SECONDS else None

    def note(self, gpu: str, report: int, now: float) -> None:
        """Remember a published report."""
        burst = self._bursts.get(gpu)
        if burst is None or now - burst.began_at > BURST_SECONDS:
            burst = _Burst(report, report, now)
        self._bursts[gpu] = burst._replace(newest=report)

    def newest(self) -> dict[str, int]:
        """By GPU, the report that is the cause of changes in the next scan."""
        return {gpu: burst.newest for gpu, burst in self._bursts.items()}

    def forget_old(self, now: float) -> None:
        """Drop reports past their burst, after a scan."""
        self._bursts = {gpu: burst for gpu, burst in self._bursts.items() if now - burst.began_at <= BURST_SECONDS}
