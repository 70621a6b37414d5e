"""A disk that is nearly full is told of while there still is room."""

import pytest

from nodeagent.components.allocations.room import SPARE_BYTES, SPARE_FILES, Room, describe_shortage


@pytest.mark.parametrize(
    ("room", "journal_bytes", "words"),
    [
        (Room(1 << 40), 0, ""),
        (Room(SPARE_BYTES), 0, ""),
        (Room(SPARE_BYTES - 1), 0, "may be needed at once"),
        (Room(SPARE_BYTES + 1999), 1000, "may be needed at once"),
        (Room(SPARE_BYTES + 2000), 1000, ""),
        (Room(1 << 40, SPARE_FILES), 0, ""),
        (Room(1 << 40, 3), 0, "room for 3 more files is left"),
    ],
)
def test_what_a_new_journal_needs_must_be_free(room: Room, journal_bytes: int, words: str) -> None:
    """Twice the journal beside some spare, and files to be made; a file system that does not count them has enough."""
    assert (words in describe_shortage(room, journal_bytes)) if words else describe_shortage(room, journal_bytes) == ""
