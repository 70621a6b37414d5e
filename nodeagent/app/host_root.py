"""Where a path of the host is for this process: below a mount of the root where it runs in a container."""

from pathlib import Path

from nodeagent.config.schema import Settings


def see_in_host_root(settings: Settings, path: Path) -> Path:
    """A path that the host has, as this process sees it."""
    return settings.node.host_root / path.relative_to("/")
