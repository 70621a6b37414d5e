"""`sharing` and `resources`, spelled as in the configuration of NVIDIA's device plugin, ready for pasting.

Two differences, both on purpose: `rename` and `devices` are honoured here, and `models` narrows an entry to GPU models.
"""

import re
from typing import ClassVar, Literal, TypeAlias

from msgspec import Struct

from nodeagent.config.compound import ListOf, Nested
from nodeagent.config.kinds import AsWritten, Flag, Maybe, Text, Whole
from nodeagent.config.knobs import Place, Section, knob, required
from nodeagent.config.tree import Node, Scalar, Sequence

DEFAULT_PREFIX = "nvidia.com"
_LABEL = r"[a-z0-9]([a-z0-9-]*[a-z0-9])?"
_NAME = rf"{_LABEL}(\.{_LABEL})*"
_DEVICE = re.compile(
    r"[0-9]{1,4}(:[0-9]{1,4})?"
    r"|GPU-[0-9a-fA-F]{8}(-[0-9a-fA-F]{4}){3}-[0-9a-fA-F]{12}"
    r"|MIG-[0-9a-fA-F]{8}(-[0-9a-fA-F]{4}){3}-[0-9a-fA-F]{12}"
    r"|MIG-GPU-[0-9a-fA-F]{8}(-[0-9a-fA-F]{4}){3}-[0-9a-fA-F]{12}/[0-9]{1,4}/[0-9]{1,4}"
)

Devices: TypeAlias = Literal["all"] | int | tuple[str, ...]

PATTERN = Text("a pattern in which * stands for any text", r".+", 256)


class ResourceName(AsWritten, frozen=True):
    """A resource name with or without its domain: `gpu` or `nvidia.com/gpu`, at most 63 characters with the domain."""

    label: ClassVar[str] = "a resource name such as gpu or nvidia.com/gpu, at most 63 characters with its domain"

    def read(self, node: Node, place: Place) -> str:
        """The name as written; the domain is judged in `rules`, together with the resource prefix."""
        text = Text(self.label, rf"({_NAME}/)?{_NAME}").read(node, place)
        if len(text if "/" in text else f"{DEFAULT_PREFIX}/{text}") > 63:
            raise place.wrong(node, self.label)
        return text

    def json_schema(self) -> dict[str, object]:
        """A string with the pattern of the name."""
        return {"type": "string", "pattern": rf"^({_NAME}/)?{_NAME}$", "maxLength": 63}


class DeviceSelection(Struct, frozen=True):
    """A selection of devices: `all`, a number, or names."""

    label: ClassVar[str] = "all, a count of at least 1, or a list of indexes, GPU:MIG indexes and UUIDs"

    def read(self, node: Node, place: Place) -> Devices:
        """A bare number is a count; a list names devices."""
        if isinstance(node, Scalar):
            return "all" if node.text == "all" else Whole(1, 1024).read(node, place)
        if not isinstance(node, Sequence):
            raise place.wrong(node, self.label)
        device = Text("an index, a GPU:MIG index or a UUID", _DEVICE.pattern)
        return ListOf(device, shortest=1).read(node, place)

    def plain(self, value: Devices) -> object:
        """A list for names, else the value unchanged."""
        return list(value) if isinstance(value, tuple) else value

    def json_schema(self) -> dict[str, object]:
        """Any of the three forms."""
        item = {"anyOf": [{"type": "integer", "minimum": 0}, {"type": "string", "pattern": f"^(?:{_DEVICE.pattern})$"}]}
        names = {"type": "array", "minItems": 1, "uniqueItems": True, "items": item}
        return {"anyOf": [{"const": "all"}, {"type": "integer", "minimum": 1, "maximum": 1024}, names]}


class SharedResource(Section):
    """One resource with several replicas of each device."""

    name: str = required(ResourceName(), "the resource whose devices are shared")
    replicas: int = required(Whole(2, 1024), "how many times each device is offered")
    rename: str | None = knob(
        Maybe(ResourceName()),
        None,
        "name of the shared resource",
        "the same name, or with .shared added where renameByDefault says so",
    )
    devices: Devices = knob(DeviceSelection(), "all", "which devices of the resource", "all of them")
    models: tuple[str, ...] = knob(
        ListOf(PATTERN),
        (),
        "only GPUs whose model matches one of these patterns; empty means every model",
        "most nodes have one model",
    )


class TimeSlicing(Section):
    """Devices shared by time slicing, without limits between containers."""

    renameByDefault: bool = knob(  # noqa: N815  # NVIDIA's spelling
        Flag(),
        default=False,
        what="add .shared to the resource names",
        why="pods go on asking for the resource's former name",
    )
    failRequestsGreaterThanOne: bool = knob(  # noqa: N815  # NVIDIA's spelling
        Flag(),
        default=False,
        what="refuse containers that ask for more than one replica of the GPU",
        why="as in NVIDIA's device plugin; more shares give no more of a GPU, so turning it on is wise",
    )
    resources: tuple[SharedResource, ...] = required(
        ListOf(Nested(SharedResource), shortest=1),
        "what is shared, entry by entry; the first that fits a device counts",
    )


class Mps(Section):
    """Devices shared at the same time through NVIDIA's multi-process service."""

    renameByDefault: bool = knob(  # noqa: N815  # NVIDIA's spelling
        Flag(),
        default=False,
        what="add .shared to the resource names",
        why="pods go on asking for the resource's former name",
    )
    failRequestsGreaterThanOne: bool = knob(  # noqa: N815  # NVIDIA's spelling
        Flag(),
        default=True,
        what="refuse containers that ask for more than one replica of the GPU",
        why="as in NVIDIA's device plugin: a share is a fixed part of one GPU",
    )
    resources: tuple[SharedResource, ...] = required(
        ListOf(Nested(SharedResource), shortest=1),
        "what is shared, entry by entry; the first that fits a device counts",
    )


class SharingSettings(Section):
    """Offer each GPU several times; spelled as in NVIDIA's device plugin."""

    timeSlicing: TimeSlicing | None = knob(  # noqa: N815  # NVIDIA's spelling
        Maybe(Nested(TimeSlicing)), None, "share by turns", "a GPU belongs to one container", reload=True
    )
    mps: Mps | None = knob(
        Maybe(Nested(Mps)),
        None,
        "share at the same time; wins over timeSlicing",
        "a GPU belongs to one container; the section added to a running agent waits for a restart",
        reload=True,
        makes_part=bool,
    )


class ResourcePattern(Section):
    """The resource name of devices that match a pattern."""

    pattern: str = required(PATTERN, "model of the GPU, or MIG profile")
    name: str = required(ResourceName(), "the resource that such devices are offered as")


class ResourcesSettings(Section):
    """Names of resources by GPU model and MIG profile; spelled as in NVIDIA's device plugin, and honoured here."""

    gpus: tuple[ResourcePattern, ...] = knob(
        ListOf(Nested(ResourcePattern)),
        (),
        "names for whole GPUs; the first pattern that fits counts, no fit means gpu",
        "every GPU is nvidia.com/gpu",
        reload=True,
    )
    mig: tuple[ResourcePattern, ...] = knob(
        ListOf(Nested(ResourcePattern)),
        (),
        "names for MIG devices; the first pattern that fits counts, no fit means mig-<profile>",
        "every profile is nvidia.com/mig-<profile>",
        reload=True,
    )
