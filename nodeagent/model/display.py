"""Use in the words of Tencent's gpu-manager: names and units are its own, because its clients read them."""

from collections.abc import Mapping

from nodeagent.model.allocation import PodIdentity
from nodeagent.model.values import Value


class DeviceInfo(Value, frozen=True):
    """What one container uses of one GPU."""

    id: str
    """PCI address, as NVML spells it."""
    card_idx: str
    """The GPU's number."""
    gpu: float
    """Percent of the time in which its processes ran."""
    mem: float
    """MiB that they use."""
    pids: tuple[int, ...]
    device_mem: float
    """MiB that the GPU has."""


class Devices(Value, frozen=True):
    """All GPUs of one container."""

    dev: tuple[DeviceInfo, ...]


class Spec(Value, frozen=True):
    """What a container asked for."""

    gpu: float
    """GPUs."""
    mem: float
    """MiB."""


class ContainerStat(Value, frozen=True):
    """One pod; both maps by the name of the container."""

    stat: Mapping[str, Devices]
    project: str
    """The namespace."""
    user: str
    cluster: str
    spec: Mapping[str, Spec]


class PodStat(Value, frozen=True):
    """One pod with its name, which its own words leave out."""

    pod: PodIdentity
    stat: ContainerStat

    @property
    def key(self) -> str:
        """The pod's UID, under which it is told; its name where nobody knows that."""
        return self.pod.uid or f"{self.pod.namespace}/{self.pod.name}"
