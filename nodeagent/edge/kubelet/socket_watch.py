"""Notices that a socket file exists, is gone, or was replaced.

Polls a few times a second instead of using inotify: an `lstat` costs a few microseconds, works on every file system
and through every mount, and needs none of the node's inotify instances, scarce on busy nodes.
"""

from pathlib import Path
from typing import Final

from anyio import sleep

from nodeagent.core.life.ticker import until_beat
from nodeagent.edge.grpc.unix_socket import FileIdentity, identify_file

POLL_EVERY_SECONDS: Final = 0.2
"""The pause while a file is awaited."""
STANDING_POLL_SECONDS: Final = 0.75
"""The pause while registered: a leaving kubelet ends the stream, seen at once; polls find all other changes."""


async def wait_present(path: Path, other_than: FileIdentity | None = None) -> FileIdentity:
    """Return when a file exists, other than `other_than`."""
    while True:
        found = identify_file(path)
        if found is not None and found != other_than:
            return found
        await sleep(until_beat(POLL_EVERY_SECONDS))
