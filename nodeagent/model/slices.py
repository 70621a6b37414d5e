"""Slices: the names and properties of a node's devices, as schedulers read them in `resource.k8s.io`."""

from collections.abc import Mapping
from typing import Final, Literal, TypeAlias

from msgspec import field

from nodeagent.model.values import Value

TaintEffect: TypeAlias = Literal["None", "NoSchedule", "NoExecute"]

KEEPING_AWAY: Final[frozenset[TaintEffect]] = frozenset({"NoSchedule", "NoExecute"})
"""Effects that keep pods away; the effect `None` only informs."""


class Version(Value, frozen=True):
    """An attribute compared as a version: `550.163.1`."""

    text: str


Attribute: TypeAlias = str | bool | int | Version


class CapacityPolicy(Value, frozen=True):
    """How much of a capacity a claim may take, and how much a claim takes by default."""

    default: int
    least: int
    step: int
    most: int


class Capacity(Value, frozen=True):
    """A device's amount of a capacity."""

    value: int
    share: CapacityPolicy | None = None
    """The rule for several claims that divide the capacity."""


class DeviceTaint(Value, frozen=True):
    """A taint of a device."""

    key: str
    value: str
    effect: TaintEffect


class CounterSet(Value, frozen=True):
    """Counters shared by devices that exclude one another: of a GPU, all resources of its MIG devices."""

    name: str
    counters: Mapping[str, int]


class SliceDevice(Value, frozen=True):
    """A device as schedulers see it."""

    name: str
    attributes: Mapping[str, Attribute] = field(default_factory=dict)
    capacity: Mapping[str, Capacity] = field(default_factory=dict)
    consumes: CounterSet | None = None
    """The device's consumption of the set of the same name."""
    taints: tuple[DeviceTaint, ...] = ()
    is_shared: bool = False
    """Whether several claims may have the device at once."""
    is_proven_first: bool = False
    """Whether a pod that gets the device is bound only after a proof of the device."""


class SliceContent(Value, frozen=True):
    """The content of a slice object: devices or sets of counters, never both."""

    devices: tuple[SliceDevice, ...] = ()
    counter_sets: tuple[CounterSet, ...] = ()


class DeviceClass(Value, frozen=True):
    """A class of devices that claims can ask for, as far as the agent reads it."""

    name: str
    resource: str = ""
    """The extended resource that schedulers serve by the class; empty without one."""
    selectors: tuple[str, ...] = ()
    """CEL expressions, all true of each device of the class."""


class StoredSlice(Value, frozen=True):
    """A slice of the agent as the API server has it."""

    name: str
    uid: str
    version: str
    """Of the object; the API server refuses a change made to another version."""
    generation: int
    slice_count: int
    content: SliceContent | None
    """`None` where the content has anything that the agent never writes."""
    is_owned: bool = True
    """Whether the slice is deleted with its node."""
    taint_times: Mapping[str, str] = field(default_factory=dict)
    """Since when each taint has been there, by device, key, value and effect: to be said again with each write."""


class SlicePool(Value, frozen=True):
    """The driver and node of a slice."""

    driver: str
    node: str
    """The pool's name too."""


class PublishedSlices(Value, frozen=True):
    """State: the node's devices in resource slices, for schedulers."""

    driver: str
    pool: str
    generation: int = 0
    slices: int = 0
    devices: int = 0
    tainted: tuple[str, ...] = ()
    """Devices with a taint."""
    problem: str = ""
    """Why the API server's slices are not as planned; empty when they are."""

    def describe(self) -> str:
        """For people: `8 devices of gpu.nvidia.com in 1 slice of pool node-1, generation 3`."""
        devices = f"{self.devices} device{'s' if self.devices != 1 else ''}"
        slices = f"{self.slices} slice{'s' if self.slices != 1 else ''}"
        return f"{devices} of {self.driver} in {slices} of pool {self.pool}, generation {self.generation}"
