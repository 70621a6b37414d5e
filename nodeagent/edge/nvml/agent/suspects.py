"""Which GPUs hung a call or crashed the library, and when each may be asked again. Pure but for the table.

A silent GPU must not starve the others: a suspect is left out, then asked last with a short deadline, ever more rarely.
One good answer clears the suspect.
"""

from msgspec import Struct

_FIRST_PAUSE_SECONDS = 1.0
_LONGEST_PAUSE_SECONDS = 60.0


class _Suspect(Struct):
    reason: str
    times: int
    due_at: float


class Suspects:
    """Counts silences by GPU index."""

    def __init__(self) -> None:
        self._suspects: dict[int, _Suspect] = {}

    def note_silence(self, gpu: int, reason: str, now: float) -> None:
        """The GPU did not answer; `reason` says how."""
        times = self._suspects[gpu].times + 1 if gpu in self._suspects else 1
        pause = min(_FIRST_PAUSE_SECONDS * 2 ** (times - 1), _LONGEST_PAUSE_SECONDS)
        self._suspects[gpu] = _Suspect(reason, times, now + pause)

    def note_answer(self, gpu: int) -> None:
        """The GPU answered, and is no suspect any more."""
        self._suspects.pop(gpu, None)

    def is_suspect(self, gpu: int) -> bool:
        """Whether the GPU was silent the last time."""
        return gpu in self._suspects

    def is_due(self, gpu: int, now: float) -> bool:
        """Whether the GPU may be asked now."""
        return gpu not in self._suspects or now >= self._suspects[gpu].due_at

    def count_silences(self, gpu: int) -> int:
        """How often in a row the GPU was silent."""
        return self._suspects[gpu].times if gpu in self._suspects else 0

    def describe(self, gpu: int) -> str:
        """Why the GPU is not asked, in words; empty for a GPU that is no suspect."""
        return self._suspects[gpu].reason if gpu in self._suspects else ""

    def clear(self) -> None:
        """Another driver, or another count of GPUs: all start afresh."""
        self._suspects.clear()
