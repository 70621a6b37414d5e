"""The agent's own writes, until the watch reports them: an older table must not be believed over a newer answer."""

from collections.abc import Mapping

from nodeagent.model.slices import StoredSlice


class OwnWrites:
    """The API server's answers to the agent's writes, put over the slices of the watch."""

    def __init__(self) -> None:
        self._answers: dict[str, StoredSlice] = {}
        self._gone: dict[str, StoredSlice] = {}
        self._told: Mapping[str, StoredSlice] = {}
        self._ended: set[str] = set()
        """UIDs of slices that the watch has reported and that are gone."""

    def note_written(self, answer: StoredSlice) -> None:
        """The answer is the newest slice, unless the watch was quicker and has a newer version."""
        self._gone.pop(answer.name, None)
        self._answers[answer.name] = answer
        self._let_go()

    def note_deleted(self, stored: StoredSlice) -> None:
        """The slice is gone."""
        self._answers.pop(stored.name, None)
        self._gone[stored.name] = stored

    def forget(self) -> None:
        """The next table of the watch is newer than every noted write."""
        self._answers.clear()
        self._gone.clear()
        self._told = {}
        self._ended.clear()

    def settle(self, told: Mapping[str, StoredSlice]) -> None:
        """Drop the notes that the watch has caught up with."""
        self._ended |= {one.uid for one in self._told.values()} - {one.uid for one in told.values()}
        self._told = told
        self._let_go()
        for name, gone in [*self._gone.items()]:
            if name not in told or told[name].uid != gone.uid:
                del self._gone[name]

    def _let_go(self) -> None:
        for name, answer in [*self._answers.items()]:
            told = self._told.get(name)
            if answer.uid in self._ended or (told is not None and not _is_older(told, answer)):
                del self._answers[name]

    def put_over(self, told: Mapping[str, StoredSlice]) -> dict[str, StoredSlice]:
        """The slices, as far as known: the watch's table under the noted writes."""
        return {name: one for name, one in told.items() if name not in self._gone} | self._answers


def _is_older(told: StoredSlice, answer: StoredSlice) -> bool:
    """Whether the watch has an older version than the answer, by the versions' numbers."""
    try:
        return int(told.version) < int(answer.version)
    except ValueError:
        return False
