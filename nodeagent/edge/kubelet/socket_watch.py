"""Notices that a socket file is there, is gone, or is another one.

It looks some times a second instead of asking inotify: one `lstat` costs a few microseconds, works on every file
system and through every mount, and needs none of the node's inotify instances, which run out on busy nodes.
"""

from pathlib import Path
from typing import Final

from anyio import sleep

from nodeagent.core.life.ticker import until_beat
from nodeagent.edge.grpc.unix_socket import FileIdentity, identify_file

LOOK_EVERY_SECONDS: Final = 0.2
"""While something is awaited."""
STANDING_LOOK_SECONDS: Final = 0.75
"""While all is well: a kubelet that goes ends its stream, which is seen at once; the look finds what sends no sign."""


async def wait_present(path: Path, other_than: FileIdentity | None = None) -> FileIdentity:
    """Return when a file is there, and it is not the one named."""
    while True:
        found = identify_file(path)
        if found is not None and found != other_than:
            return found
        await sleep(until_beat(LOOK_EVERY_SECONDS))
