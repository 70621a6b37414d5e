"""Where a path of the host is for this process: below a mount of the root when running in a container."""

from pathlib import Path

from nodeagent.config.schema import Settings
from nodeagent.edge.host.driver.roots import DriverRoots, resolve_driver_roots


def see_in_host_root(settings: Settings, path: Path) -> Path:
    """A path of the host, as seen by this process."""
    return settings.node.host_root / path.relative_to("/")


def see_dev_root(settings: Settings) -> Path | None:
    """Where the settings put device nodes, as seen by this process; `None` if unset."""
    dev_root = settings.driver.dev_root
    return see_in_host_root(settings, dev_root) if dev_root is not None else None


def find_driver_roots(settings: Settings) -> DriverRoots:
    """Where the driver is now: a driver container may have come meanwhile. Blocks, as file systems do."""
    root = see_in_host_root(settings, settings.driver.root)
    return resolve_driver_roots(root, dev_root=see_dev_root(settings), host_root=settings.node.host_root)
