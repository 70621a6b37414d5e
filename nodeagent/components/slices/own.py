"""Our own writes, until the watch has told them: a table that is older than an answer must not be believed over it."""

from collections.abc import Mapping

from nodeagent.model.slices import StoredSlice


class OwnWrites:
    """What the API server answered to our writes, put over what the watch tells."""

    def __init__(self) -> None:
        self._answers: dict[str, StoredSlice] = {}
        self._gone: dict[str, StoredSlice] = {}
        self._told: Mapping[str, StoredSlice] = {}
        self._ended: set[str] = set()
        """UIDs of those that were told and are no more."""

    def note_written(self, answer: StoredSlice) -> None:
        """This is what there is now, unless the watch was quicker than the answer and is past it."""
        self._gone.pop(answer.name, None)
        self._answers[answer.name] = answer
        self._let_go()

    def note_deleted(self, stored: StoredSlice) -> None:
        """This one is there no more."""
        self._answers.pop(stored.name, None)
        self._gone[stored.name] = stored

    def forget(self) -> None:
        """What is told from now on is newer than any of it."""
        self._answers.clear()
        self._gone.clear()
        self._told = {}
        self._ended.clear()

    def settle(self, told: Mapping[str, StoredSlice]) -> None:
        """Let go of what the watch has come to."""
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
        """What there is, as far as it is known."""
        return {name: one for name, one in told.items() if name not in self._gone} | self._answers


def _is_older(told: StoredSlice, answer: StoredSlice) -> bool:
    """By the numbers that the API server counts its objects' versions with."""
    try:
        return int(told.version) < int(answer.version)
    except ValueError:
        return False
