"""Starts the GPU worker as soon as the settings are known, before the slow imports of the agent.

Refuses to open the library while a device node is missing: the driver component makes device nodes first.
"""

import contextlib
from collections.abc import Iterator
from pathlib import Path

from nodeagent.app.host_root import see_dev_root, see_in_host_root
from nodeagent.config.schema import Settings
from nodeagent.edge.nvml.agent.command import EarlyWorker, render_command, render_environment


@contextlib.contextmanager
def start_early_worker(settings: Settings) -> Iterator[EarlyWorker | None]:
    """The worker that these settings call for, if any; a worker not taken over is ended with the block."""
    with contextlib.ExitStack() as stack:
        worker = None
        if settings.gpus.simulated_profile is None:
            with contextlib.suppress(OSError):  # retried by its owner, with a report of the error
                worker = EarlyWorker(
                    render_command(*name_driver(settings)), render_environment(settings.driver.worker_environment)
                )
                stack.callback(worker.close)
                if are_nodes_there(settings):
                    worker.open_library()
        yield worker


def name_driver(settings: Settings) -> tuple[str, str]:
    """Driver root and library, as passed to the worker."""
    driver = settings.driver
    return str(see_in_host_root(settings, driver.root)), str(driver.nvml_library or "")


def are_nodes_there(settings: Settings) -> bool:
    """Whether each GPU listed by the kernel module has a device node; true for an empty list."""
    listed = _count(settings.node.proc_dir / "driver/nvidia/gpus", "*")
    dev_root = see_dev_root(settings)
    either = see_in_host_root(settings, settings.driver.root), settings.node.host_root
    roots = either if dev_root is None else (dev_root,)
    return listed <= max(_count(root / "dev", "nvidia[0-9]*") for root in roots)


def _count(directory: Path, pattern: str) -> int:
    return sum(1 for _ in directory.glob(pattern))
