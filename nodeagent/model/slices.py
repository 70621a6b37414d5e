"""Slices: what a node's devices are called and made of, as schedulers read it in `resource.k8s.io`."""

from collections.abc import Mapping
from typing import Final, Literal, TypeAlias

from msgspec import field

from nodeagent.model.values import Value

TaintEffect: TypeAlias = Literal["None", "NoSchedule", "NoExecute"]

KEEPING_AWAY: Final[frozenset[TaintEffect]] = frozenset({"NoSchedule", "NoExecute"})
"""Effects that keep pods away; the other only tells."""


class Version(Value, frozen=True):
    """An attribute that is compared as a version: `550.163.1`."""

    text: str


Attribute: TypeAlias = str | bool | int | Version


class ShareRule(Value, frozen=True):
    """How much of a capacity one claim may take, and how much it takes that does not say."""

    default: int
    least: int
    step: int
    most: int


class Capacity(Value, frozen=True):
    """How much a device has of something."""

    value: int
    share: ShareRule | None = None
    """Where several claims divide it."""


class DeviceTaint(Value, frozen=True):
    """What keeps pods away from a device."""

    key: str
    value: str
    effect: TaintEffect


class CounterSet(Value, frozen=True):
    """What devices that exclude one another take from: of a GPU, everything that its parts are made of."""

    name: str
    counters: Mapping[str, int]


class SliceDevice(Value, frozen=True):
    """One device as schedulers see it."""

    name: str
    attributes: Mapping[str, Attribute] = field(default_factory=dict)
    capacity: Mapping[str, Capacity] = field(default_factory=dict)
    consumes: CounterSet | None = None
    """What it takes from the set of this name."""
    taints: tuple[DeviceTaint, ...] = ()
    is_shared: bool = False
    """Whether several claims may have it at once."""


class SliceContent(Value, frozen=True):
    """What one object holds: devices or sets of counters, never both."""

    devices: tuple[SliceDevice, ...] = ()
    counter_sets: tuple[CounterSet, ...] = ()


class StoredSlice(Value, frozen=True):
    """A slice of ours as the API server has it."""

    name: str
    uid: str
    version: str
    """Of the object, by which a change is refused that was made to another."""
    generation: int
    slice_count: int
    content: SliceContent | None
    """`None` where there is anything in it that nobody of ours writes."""
    is_owned: bool = True
    """Whether it goes with its node."""
    taint_times: Mapping[str, str] = field(default_factory=dict)
    """Since when each taint has been there, by device, key, value and effect: to be said again with each write."""


class SlicePool(Value, frozen=True):
    """Whose slices they are."""

    driver: str
    node: str
    """The pool's name too."""


class PublishedSlices(Value, frozen=True):
    """State: what schedulers see of this node's devices."""

    driver: str
    pool: str
    generation: int = 0
    slices: int = 0
    devices: int = 0
    tainted: tuple[str, ...] = ()
    """Devices that pods are kept away from."""
    problem: str = ""
    """Why the API server does not have what it should have; empty where it has."""

    def describe(self) -> str:
        """As people read it: `8 devices of gpu.nvidia.com in 1 slice of pool node-1, generation 3`."""
        devices = f"{self.devices} device{'s' if self.devices != 1 else ''}"
        slices = f"{self.slices} slice{'s' if self.slices != 1 else ''}"
        return f"{devices} of {self.driver} in {slices} of pool {self.pool}, generation {self.generation}"
