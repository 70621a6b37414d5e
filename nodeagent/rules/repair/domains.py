"""The GPUs that an act hits, and their pods: drain, act and proof have the one list of this file."""

from collections.abc import Iterable

from nodeagent.model.allocation import PodIdentity
from nodeagent.model.gpu import Gpu, Inventory
from nodeagent.model.repairs import FaultSession, Rung, SessionGpu
from nodeagent.rules.signals import Hold

_WHOLE_NODE = frozenset({Rung.RELOAD_DRIVER, Rung.REBOOT, Rung.SERVICE})


def describe_gpu(gpu: Gpu) -> SessionGpu:
    """A GPU as a session remembers it."""
    return SessionGpu(uuid=gpu.uuid, board=gpu.serial or gpu.uuid, index=gpu.index, address=gpu.pci.address)


def find_domain(session: FaultSession, rung: Rung, inventory: Inventory) -> tuple[SessionGpu, ...]:
    """All GPUs hit by an act: those of the session, and for an act on the node every GPU of the node.

    The peers of a GPU by NVLink are not guessed here: a reset that needs them is refused and names them.
    """
    if rung not in _WHOLE_NODE:
        return session.gpus
    others = (describe_gpu(gpu) for gpu in inventory.gpus if gpu.uuid not in session.uuids)
    return (*session.gpus, *others)


def list_pods(domain: Iterable[SessionGpu], inventory: Inventory, holds: Iterable[Hold]) -> tuple[str, ...]:
    """The names of the pods with a device of the domain."""
    return tuple(sorted({pod.describe() for pod in find_pods(domain, inventory, holds)}))


def find_pods(domain: Iterable[SessionGpu], inventory: Inventory, holds: Iterable[Hold]) -> frozenset[PodIdentity]:
    """The pods with a device of the domain, MIG devices of its GPUs included."""
    devices = set[str]()
    for one in domain:
        gpu = inventory.find_gpu(one.uuid)
        devices |= {one.uuid} if gpu is None else {*gpu.device_uuids}
    return frozenset(hold.pod for hold in holds if hold.device in devices)
