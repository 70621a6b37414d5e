"""Events of devices of other vendors."""

from nodeagent.model.devices import Standing
from nodeagent.model.ids import DeviceId
from nodeagent.model.values import Value


class DeviceFound(Value, frozen=True):
    """A device of another kind than NVIDIA's GPUs appeared."""

    device: DeviceId
    name: str


class DeviceLost(Value, frozen=True):
    """Such a device is there no more."""

    device: DeviceId
    name: str
    holders: tuple[str, ...] = ()
    """Containers that still hold the device."""


class DeviceJudged(Value, frozen=True):
    """Such a device can be given to containers again, or cannot any more."""

    device: DeviceId
    name: str
    standing: Standing
    reason: str = ""
