"""The GPUs that this node has and had: what is remembered of them over restarts, and which of them are missed.

Owns the rule for when a GPU that is gone is missed: as long as the node has fewer than it had, or than `gpus.expected`
says. One that another has taken the place of, in its slot or in number, is forgotten.
Refuses files: bytes in, bytes out.
"""

from typing import Final, NamedTuple

from msgspec import json
from msgspec.structs import replace

from nodeagent.model.gpu import Gpu, Inventory, MissingGpu, StoredGpu
from nodeagent.model.ids import PciAddress, parse_pci_address
from nodeagent.model.values import Value
from nodeagent.rules.selectors import is_for_work

GPU_STORE_VERSION: Final = 1
STORE: Final = ("gpus.json", "nodeagent-gpus", GPU_STORE_VERSION)
"""Name of the file, its seal, and the version of what it holds."""
GONE_KEPT: Final = 64
"""GPUs that are gone are remembered, up to so many."""


class GpuStore(Value, frozen=True):
    """What the file holds."""

    source: str
    """`gpus.source`: the GPUs of one source are not missed by another."""
    gpus: tuple[StoredGpu, ...] = ()
    expected_by_label: int | None = None
    """How many GPUs the node label asked for when it was last seen."""


class Missed(NamedTuple):
    """What there should be and is not."""

    vanished: tuple[StoredGpu, ...]
    shortfall: int


def encode_gpu_store(roster: GpuStore) -> bytes:
    """The same list always gives the same bytes."""
    return json.encode(roster, order="sorted")


def decode_gpu_store(content: bytes) -> GpuStore:
    """The list in these bytes.

    Raises:
        DecodeError: The bytes are no list of this version.
    """
    return json.decode(content, type=GpuStore)


def find_missed(
    known: tuple[StoredGpu, ...],
    gpus: tuple[Gpu, ...],
    missing: tuple[MissingGpu, ...],
    expected: int | None,
    now_seconds: float,
) -> Missed:
    """Which GPUs are gone without a successor; the one missed for the shortest time first."""
    listed = [gpu for gpu in gpus if is_for_work(gpu)]
    occupied = {gpu.pci.address for gpu in gpus} | {one.address for one in missing}
    count = len({gpu.pci.address for gpu in listed} | {one.address for one in missing})
    uuids = {gpu.uuid for gpu in gpus}
    gone = sorted(
        (one for one in known if one.uuid not in uuids and one.address not in occupied),
        key=lambda one: (-(one.gone_since_seconds or now_seconds), one.index, one.uuid),
    )
    due = max(0, (len(known) if expected is None else expected) - count)
    vanished = tuple(
        one if one.gone_since_seconds is not None else replace(one, gone_since_seconds=now_seconds)
        for one in gone[: min(due, GONE_KEPT)]
    )
    return Missed(vanished, shortfall=due - len(vanished) if expected is not None else 0)


def list_stored(inventory: Inventory) -> tuple[StoredGpu, ...]:
    """What is to be remembered of this inventory: what is there, and what is missed."""
    present = (
        StoredGpu(uuid=gpu.uuid, name=gpu.name, index=gpu.index, address=gpu.pci.address)
        for gpu in inventory.gpus
        if gpu.uuid and is_for_work(gpu)
    )
    return (*present, *inventory.vanished)


def find_stored(known: tuple[StoredGpu, ...], name: str) -> StoredGpu | None:
    """The GPU that a person means by UUID, PCI address or the index that it had."""
    return next((one for one in known if name in {one.uuid, str(one.index)} or _parse(name) == one.address), None)


def _parse(name: str) -> PciAddress | None:
    try:
        return parse_pci_address(name)
    except ValueError:
        return None
