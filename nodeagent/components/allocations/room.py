"""Whether the state directory has room for the next writes; pure.

A full disk refuses pods, too late for a warning, so a shortage is reported earlier. A new journal is written whole
beside the old journal, so twice its size is needed, and other small files live there too.
"""

from typing import Final, NamedTuple

from nodeagent.model.wording import render_bytes

SPARE_BYTES: Final = 16 * 1024 * 1024
SPARE_FILES: Final = 32


class Room(NamedTuple):
    """Free room of the journal's file system, for the agent's user."""

    free_bytes: int
    free_files: int | None = None
    """`None` where the file system does not count files."""


def describe_shortage(room: Room, journal_bytes: int) -> str:
    """The shortage in words; empty while there is enough."""
    needed = 2 * journal_bytes + SPARE_BYTES
    if room.free_bytes < needed:
        return f"{render_bytes(room.free_bytes)} are free, and {render_bytes(needed)} may be needed at once"
    if room.free_files is not None and room.free_files < SPARE_FILES:
        return f"room for {room.free_files} more files is left"
    return ""
