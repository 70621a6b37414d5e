"""The errors that components may raise to one another.

NodeagentError
├── DriverError                the driver as a whole
│   ├── DriverUnavailable      not there, not loaded, not answering: wait for the driver
│   ├── DriverMismatch         library and module differ: wait for a reload
│   ├── DriverStuck            a call did not come back in time
│   └── DriverReleased         handles were given up on purpose
├── GpuError                   a single GPU, the others are fine
│   ├── GpuUnknown             no device of the given name
│   ├── GpuLost                the GPU fell off the bus
│   └── PartitionRefused       the driver refuses to partition the GPU otherwise
├── AllocationError            an Allocate to be refused
│   ├── RequestInvalid         an invalid request
│   │   └── DeviceUnknown      a device not of the resource
│   ├── DeviceUnhealthy        known, but not fit for work
│   ├── DeviceHeld             a living pod holds the device
│   ├── FractionsUnavailable       fractions of GPUs cannot be given at the moment
│   ├── NoRoom                 a fraction larger than any GPU has free now
│   ├── BindingRefused         a binding in conflict with the ledger
│   ├── ClaimRefused           a claim that cannot be made ready, or not now
│   ├── CallerUnclear          the container about to start cannot be identified for certain
│   └── JournalUnavailable     the answer cannot be made durable
├── MpsRefused                 a daemon of the multi-process service cannot be had
├── MpsSilent                  such a daemon does not answer
├── PublicationUnreadable      a node's published description of its GPUs makes no sense
├── SourceUnusable             GPUs cannot come from where the settings say
├── FaultUnknown               the simulation was asked for an unknown fault
└── ControlRefused             the agent refuses a person's request
"""

from nodeagent.model.nvidia import LIBRARY
from nodeagent.model.wording import suggest


class NodeagentError(Exception):
    """Base of all errors raised by nodeagent itself."""


class DriverError(NodeagentError):
    """The driver as a whole cannot be used."""


class DriverUnavailable(DriverError):
    """The driver is not there, not loaded, or does not answer."""

    def __init__(self, attempted: str, reason: str) -> None:
        super().__init__(f"cannot {attempted}: {reason}")
        self.attempted, self.reason = attempted, reason


class DriverMismatch(DriverError):
    """The library belongs to another driver version than the loaded module."""

    def __init__(self, library_version: str, module_version: str) -> None:
        super().__init__(
            f"{LIBRARY} library {library_version or 'of unknown version'} does not fit kernel module"
            f" {module_version or 'of unknown version'}: reload the module or reboot"
        )
        self.library_version, self.module_version = library_version, module_version


class DriverStuck(DriverError):
    """A call into the driver outlived its deadline."""

    def __init__(self, call: str, deadline_seconds: float) -> None:
        super().__init__(f"{call} did not come back within {deadline_seconds:g} s")
        self.call, self.deadline_seconds = call, deadline_seconds


class DriverReleased(DriverError):
    """The agent released its handles on purpose and holds no handle until a resume."""

    def __init__(self, reason: str) -> None:
        super().__init__(f"the driver is released ({reason}): run `nodeagent resume` to take it back")
        self.reason = reason


class GpuError(NodeagentError):
    """A single GPU cannot be used; the others can."""


class GpuUnknown(GpuError):
    """No GPU of the given name is known."""

    def __init__(self, name: str, known: tuple[str, ...] = ()) -> None:
        hint = f": known are {', '.join(known)}" if known else ""
        super().__init__(f"no GPU {name!r}{hint}{suggest(name, known)}")
        self.name = name


class GpuLost(GpuError):
    """The GPU fell off the bus."""

    def __init__(self, gpu: str, reason: str) -> None:
        super().__init__(f"GPU {gpu} is lost: {reason}")
        self.gpu, self.reason = gpu, reason


class PartitionRefused(GpuError):
    """The driver refused a call that changes a GPU's partitions; the calls before stand."""

    def __init__(self, what: str, reason: str, *, in_use: bool = False) -> None:
        super().__init__(f"cannot {what}: {reason}")
        self.what, self.reason, self.in_use = what, reason, in_use


class AllocationError(NodeagentError):
    """An Allocate to be refused."""


class RequestInvalid(AllocationError):
    """An invalid request of the kubelet; worded as the vendor's device plugin does, for tools match the words."""

    def __init__(self, resource: str, reason: str) -> None:
        super().__init__(f'invalid allocation request for "{resource}": invalid request: {reason}')
        self.resource, self.reason = resource, reason


class DeviceUnknown(RequestInvalid):
    """The kubelet asked for a device that is not of the resource."""

    def __init__(self, resource: str, device: str) -> None:
        super().__init__(resource, f"unknown device: {device}")
        self.device = device


class DeviceUnhealthy(AllocationError):
    """The kubelet asked for a device that is not fit for work."""

    def __init__(self, device: str, reason: str) -> None:
        super().__init__(f"device {device} is unhealthy: {reason}")
        self.device, self.reason = device, reason


class DeviceHeld(AllocationError):
    """The kubelet asked for a device held by a living pod."""

    def __init__(self, device: str, holder: str) -> None:
        why = "" if holder.startswith("claim ") else ", the kubelet has forgotten it"
        super().__init__(f"device {device} is held by {holder}{why}")
        self.device, self.holder = device, holder


class ClaimRefused(AllocationError):
    """A claim that cannot be made ready as it is, or not now; the message reaches the pod's event."""


class FractionsUnavailable(AllocationError):
    """Fractions of GPUs cannot be given at the moment; the kubelet asks again."""

    def __init__(self, reason: str) -> None:
        super().__init__(f"parts of GPUs cannot be given: {reason}")
        self.reason = reason


class NoRoom(AllocationError):
    """No GPU has so much free now; the kubelet asks again, and succeeds when there is room."""

    def __init__(self, reason: str, looked_at: tuple[str, ...] = ()) -> None:
        super().__init__(reason)
        self.reason, self.looked_at = reason, looked_at


class BindingRefused(AllocationError):
    """A binding conflicts with the ledger of the GPUs; the kubelet asks again."""

    def __init__(self, reason: str) -> None:
        super().__init__(f"the parts cannot be given: {reason}")
        self.reason = reason


class CallerUnclear(AllocationError):
    """The container about to start cannot be identified for certain; the kubelet asks again."""

    def __init__(self, resource: str, reason: str) -> None:
        super().__init__(f"cannot tell yet which container starts with these devices of {resource}: {reason}")
        self.resource, self.reason = resource, reason


class JournalUnavailable(AllocationError):
    """An allocation cannot be made durable, so the kubelet must not be answered."""

    def __init__(self, path: str, reason: str) -> None:
        super().__init__(f"cannot write the allocation journal {path}: {reason}")
        self.path, self.reason = path, reason


class SpecsUnavailable(NodeagentError):
    """CDI specifications cannot be written at the moment."""

    def __init__(self) -> None:
        super().__init__(
            "CDI specifications cannot be written yet: no GPU of a driver that is ready has been read, or the component"
            " has failed; see `nodeagent status`"
        )


class MpsRefused(NodeagentError):
    """A daemon of the multi-process service cannot be had, or not now; the message says why."""


class MpsSilent(NodeagentError):
    """A daemon of the multi-process service does not answer."""


class PublicationUnreadable(NodeagentError):
    """A node's published description of its GPUs makes no sense to this version."""

    def __init__(self, key: str, reason: str) -> None:
        super().__init__(f"cannot read {key} of the node: {reason}")
        self.key, self.reason = key, reason


class SourceUnusable(NodeagentError):
    """GPUs cannot come from the source that the settings name; the message says why."""


class FaultUnknown(NodeagentError):
    """The simulation was asked for an unknown fault."""

    def __init__(self, fault: str, known: tuple[str, ...]) -> None:
        super().__init__(f"unknown fault {fault!r}: choose one of {', '.join(known)}{suggest(fault, known)}")
        self.fault = fault


class ControlRefused(NodeagentError):
    """The running agent cannot or will not do as a person asked; the message says why."""
