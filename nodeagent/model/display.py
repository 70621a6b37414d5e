"""Use in the format of Tencent's gpu-manager: names and units are those of gpu-manager, as its clients read them."""

from collections.abc import Mapping

from nodeagent.model.allocation import PodIdentity
from nodeagent.model.values import Value


class DeviceInfo(Value, frozen=True):
    """A container's use of a GPU."""

    id: str
    """PCI address, as the driver spells it."""
    card_idx: str
    """The GPU's number."""
    gpu: float
    """Percent of the time in which the container's processes ran."""
    mem: float
    """MiB used by the container."""
    pids: tuple[int, ...]
    device_mem: float
    """The GPU's memory in MiB."""


class Devices(Value, frozen=True):
    """All GPUs of a container."""

    dev: tuple[DeviceInfo, ...]


class Spec(Value, frozen=True):
    """The resources that a container asked for."""

    gpu: float
    """GPUs."""
    mem: float
    """MiB."""


class ContainerStat(Value, frozen=True):
    """Use and requests of a pod; both maps by the name of the container."""

    stat: Mapping[str, Devices]
    project: str
    """The namespace."""
    user: str
    cluster: str
    spec: Mapping[str, Spec]


class PodStat(Value, frozen=True):
    """A pod with its name, left out of the pod's own record."""

    pod: PodIdentity
    stat: ContainerStat

    @property
    def key(self) -> str:
        """The pod's UID, as the key of its entry; namespace and name where the UID is unknown."""
        return self.pod.uid or f"{self.pod.namespace}/{self.pod.name}"
