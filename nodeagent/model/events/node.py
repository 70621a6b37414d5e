"""Facts about the node, its containers and its devices of other vendors."""

from typing import ClassVar

from nodeagent.model.allocation import PodIdentity
from nodeagent.model.devices import Standing
from nodeagent.model.ids import DeviceId
from nodeagent.model.values import Value


class LabelsApplied(Value, frozen=True):
    """Node labels were written to a sink."""

    sink: str
    changed: tuple[str, ...]


class LabelsContested(Value, frozen=True):
    """Another program writes labels of the node with other values than the agent's; the labels are left to it."""

    keys: tuple[str, ...]


class SlicesWritten(Value, frozen=True):
    """The node's slices for schedulers were written."""

    pool: str
    written: tuple[str, ...]
    removed: tuple[str, ...]
    generation: int


class ConfigurationReloaded(Value, frozen=True):
    """A new configuration was read; settings that can change while running are in force."""

    changed: tuple[str, ...]
    needs_restart: tuple[str, ...] = ()


class ConfigurationRejected(Value, frozen=True):
    """A new configuration was read and is invalid; the configuration before stays in force."""

    problems: tuple[str, ...]


class NodeRequestRefused(Value, frozen=True):
    """A node request, by a label or an annotation, was refused."""

    shown_as: ClassVar[str] = "WishRefused"

    label: str
    value: str
    reason: str


class RefusedPodDeleted(Value, frozen=True):
    """A pod refused by this node was deleted, so that its controller makes another."""

    pod: PodIdentity
    controller: str
    """The kind of the controller."""
    reason: str
    """The kubelet's words on the refusal."""


class CdiSpecsWritten(Value, frozen=True):
    """CDI specifications were written or removed, because they differed from the plan."""

    written: tuple[str, ...]
    removed: tuple[str, ...]
    generation: int


class RuntimeConfigured(Value, frozen=True):
    """The container runtime's configuration was written; it counts from the runtime's next start."""

    paths: tuple[str, ...]
    repair: bool = False
    """Whether another program had undone the configuration."""
    unproved: str = ""
    """Why a trial start with the configuration was not possible; empty after a trial."""


class RuntimeRestarted(Value, frozen=True):
    """The container runtime was restarted, and rolled back where the restart failed."""

    command: str
    failure: str = ""
    """Why the configuration was rolled back; empty when all is well."""


class DeviceFound(Value, frozen=True):
    """A device of another kind than the driver's GPUs appeared."""

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
