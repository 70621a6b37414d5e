"""Whether the state directory has room for what must be written next; pure.

A full disk refuses pods, and is told of then; this tells of it before. The journal is begun anew as a whole beside
the one that is, so it needs twice its size, and other small files live there too.
"""

from typing import Final, NamedTuple

from nodeagent.model.units import render_bytes

SPARE_BYTES: Final = 16 * 1024 * 1024
SPARE_FILES: Final = 32


class Room(NamedTuple):
    """What is left where the journal is, for whom the agent runs as."""

    free_bytes: int
    free_files: int | None = None
    """`None` where the file system does not count files."""


def describe_shortage(room: Room, journal_bytes: int) -> str:
    """What is nearly used up; empty while there is enough."""
    needed = 2 * journal_bytes + SPARE_BYTES
    if room.free_bytes < needed:
        return f"{render_bytes(room.free_bytes)} are free, and {render_bytes(needed)} may be needed at once"
    if room.free_files is not None and room.free_files < SPARE_FILES:
        return f"room for {room.free_files} more files is left"
    return ""
