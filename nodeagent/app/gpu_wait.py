"""On a node without GPUs the agent waits for a GPU in a tiny process, if the settings ask for it.

Owns when there is no work: no GPU is seen or made up, no other device is described, and no earlier agent has known a
GPU here. An earlier agent's GPU has left labels, a journal and pods behind, and its loss must be reported.
"""

import os
import sys
from pathlib import Path
from typing import Final

from msgspec import DecodeError

from nodeagent.app.endpoints import ADMIN_SOCKET
from nodeagent.app.host_root import see_dev_root, see_in_host_root
from nodeagent.components.inventory.gpu_store import STORE, decode_gpu_store
from nodeagent.config.schema import Settings
from nodeagent.core.log.lines import configure_logging, get_logger
from nodeagent.edge.host.devices import gpu_arrival
from nodeagent.edge.host.devices.sysfs import PCI_DEVICES
from nodeagent.edge.host.driver.roots import CONTAINER_DRIVER_ROOT
from nodeagent.edge.host.files.sealed_file import SealedFile
from nodeagent.edge.http.listeners import open_tcp_listener, open_unix_listener

POLL_INTERVAL_SECONDS: Final = 20


def wait_for_gpu(settings: Settings) -> None:
    """Return where there is work; else become the waiting process, which starts the agent over with the first GPU.

    Raises:
        ListenFailed: The port or the admin socket cannot be had.
    """
    pci_devices, dev_directories = str(settings.node.sys_dir / PCI_DEVICES), _list_dev_directories(settings)
    if _has_work(settings) or gpu_arrival.has_gpu(pci_devices, dev_directories):
        return
    configure_logging(form=settings.log.format, level=settings.log.level)
    address = settings.http.listen
    public = open_tcp_listener(address.host, address.port, key="http.listen")
    admin = open_unix_listener(settings.node.run_dir / ADMIN_SOCKET, key="node.run_dir", mode=0o600)
    host, port = public.getsockname()[:2]
    get_logger(component="agent").info(
        "gpu_awaited", listen=f"{host}:{port}", looks_every_seconds=POLL_INTERVAL_SECONDS
    )
    for listener in (public, admin):
        listener.set_inheritable(True)
    numbers = (str(public.fileno()), str(admin.fileno()))
    waiting = (*numbers, str(POLL_INTERVAL_SECONDS), pci_devices, *dev_directories)
    again = (sys.executable, *sys.orig_argv[1:])
    os.execv(sys.executable, [sys.executable, "-I", "-S", gpu_arrival.__file__, *waiting, "--", *again])  # noqa: S606


def _has_work(settings: Settings) -> bool:
    is_made_up = settings.gpus.simulated_profile is not None
    return (
        is_made_up or bool(settings.devices.classes) or _has_stored_gpu(settings.node.state_dir, settings.gpus.source)
    )


def _has_stored_gpu(state_dir: Path, source: str) -> bool:
    """Whether an earlier agent has seen a GPU here; true if its store cannot be read."""
    name, seal, version = STORE
    found = SealedFile(state_dir / name, seal, version).read()
    try:
        roster = decode_gpu_store(found.body) if found.body is not None else None
    except DecodeError:
        return True
    return bool(found.troubles or (roster is not None and roster.source == source and roster.gpus))


def _list_dev_directories(settings: Settings) -> tuple[str, ...]:
    """Where a driver's device nodes would be: of the host, of a driver container, or where the settings say."""
    host = settings.node.host_root
    own = see_in_host_root(settings, settings.driver.root)
    roots = (host, host / CONTAINER_DRIVER_ROOT, own, see_dev_root(settings) or own)
    return tuple(dict.fromkeys(str(root / "dev") for root in roots))
