"""The receipt of a container: the folder in which a container reads about its own GPUs and their faults.

Owns the folder's name on the host, which no later container has again, and the folder's place in the container.
"""

from collections.abc import Iterable
from typing import Final

from msgspec.structs import replace

from nodeagent.config.schema import Settings
from nodeagent.model.allocation import Allocation
from nodeagent.model.journal import Binding
from nodeagent.model.plugin import ContainerAnswer, ContainerMount

CONTAINER_FOLDER: Final = "/run/nodeagent"
RECEIPT_FOLDERS: Final = "receipts"
"""Below the state directory."""
_MILLISECONDS: Final = 1000


def name_allocation_receipt(allocation: Allocation) -> str:
    """The folder for whole devices and replicas; numbers alone begin anew where a journal is lost."""
    return f"a{allocation.number}-{int(allocation.since_seconds * _MILLISECONDS):x}"


def name_fraction_receipt(binding: Binding) -> str:
    """The folder for fractions, by the CDI name in the kubelet's answer."""
    return binding.cdi_name.partition("=")[2] or f"b{binding.number}-{int(binding.since_seconds * _MILLISECONDS):x}"


def name_claim_receipt(uid: str) -> str:
    """The folder for all containers of a claim."""
    return f"c-{uid}"


def plan_receipt_mount(host_folder: str) -> ContainerMount:
    """The mount of a receipt's folder: the folder and no file, as a file replaced later would stay unseen."""
    return ContainerMount(container_path=CONTAINER_FOLDER, host_path=host_folder)


def add_receipt(answer: ContainerAnswer, allocation: Allocation, settings: Settings) -> ContainerAnswer:
    """The answer to Allocate with the receipt's mount, where the settings give containers a receipt."""
    if not settings.signals.receipts:
        return answer
    folder = f"{locate_receipts(settings)}/{name_allocation_receipt(allocation)}"
    return replace(answer, mounts=(plan_receipt_mount(folder), *answer.mounts))


def locate_receipts(settings: Settings) -> str:
    """The directory with the folders of all containers."""
    return f"{settings.node.state_dir}/{RECEIPT_FOLDERS}"


def list_mount_points(mounts: Iterable[ContainerMount]) -> tuple[tuple[str, bool], ...]:
    """Places in the folder at which other mounts of the container begin, and whether each place is a directory.

    The folder is read-only in the container, so that no runtime could make the places there.
    """
    prefix = f"{CONTAINER_FOLDER}/"
    return tuple(
        (each.container_path.removeprefix(prefix), each.memory_bytes > 0)
        for each in mounts
        if each.container_path.startswith(prefix)
    )
