"""The errors that parts may show one another.

NodeagentError
├── DriverError                the driver as a whole
│   ├── DriverUnavailable      not there, not loaded, not answering: wait for it
│   ├── DriverMismatch         library and module differ: wait for a reload
│   ├── DriverStuck            a call did not come back in time
│   └── DriverReleased         handles were given up on purpose
├── GpuError                   one GPU, the others are fine
│   ├── GpuUnknown             nobody knows a device of that name
│   ├── GpuLost                it fell off the bus
│   └── PartitionRefused       its driver refuses to cut it otherwise
├── AllocationError            an Allocate that must be refused
│   ├── RequestInvalid         it asks for what cannot be asked for
│   │   └── DeviceUnknown      a device that the resource does not have
│   ├── DeviceUnhealthy        known, but not fit for work
│   ├── DeviceHeld             a living pod holds it
│   ├── PartsUnavailable       parts of GPUs cannot be given at the moment
│   ├── NoRoom                 a part of a GPU that no GPU has free now
│   ├── BindingRefused         a binding that goes against the account
│   ├── ClaimRefused           a claim that cannot be made ready, or not now
│   ├── CallerUnclear          nobody can say for certain which container is about to start
│   └── JournalUnavailable     the answer cannot be made durable
├── MpsRefused                 a daemon of NVIDIA's multi-process service cannot be had
├── MpsSilent                  such a daemon does not answer
├── PublicationUnreadable      what a node says of its GPUs to the cluster makes no sense
├── FaultUnknown               the simulation was asked for a fault it does not know
└── ControlRefused             a person asked the agent for something it will not do
"""

from nodeagent.model.nearest import suggest


class NodeagentError(Exception):
    """Anything that nodeagent itself says went wrong."""


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
            f"NVML library {library_version or 'of unknown version'} does not fit kernel module"
            f" {module_version or 'of unknown version'}: reload the module or reboot"
        )
        self.library_version, self.module_version = library_version, module_version


class DriverStuck(DriverError):
    """A call into the driver outlived its deadline."""

    def __init__(self, call: str, deadline_seconds: float) -> None:
        super().__init__(f"{call} did not come back within {deadline_seconds:g} s")
        self.call, self.deadline_seconds = call, deadline_seconds


class DriverReleased(DriverError):
    """The agent gave up its handles on purpose and holds none until it is told to resume."""

    def __init__(self, reason: str) -> None:
        super().__init__(f"the driver is released ({reason}): run `nodeagent resume` to take it back")
        self.reason = reason


class GpuError(NodeagentError):
    """One GPU cannot be used; the others can."""


class GpuUnknown(GpuError):
    """Nobody knows a GPU of that name."""

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
    """The driver refused one call that changes how a GPU is cut; what was done before it stands."""

    def __init__(self, what: str, reason: str, *, in_use: bool = False) -> None:
        super().__init__(f"cannot {what}: {reason}")
        self.what, self.reason, self.in_use = what, reason, in_use


class AllocationError(NodeagentError):
    """An Allocate that must be refused."""


class RequestInvalid(AllocationError):
    """The kubelet asked for what cannot be asked for; worded as NVIDIA's device plugin does, for tools match it."""

    def __init__(self, resource: str, reason: str) -> None:
        super().__init__(f'invalid allocation request for "{resource}": invalid request: {reason}')
        self.resource, self.reason = resource, reason


class DeviceUnknown(RequestInvalid):
    """The kubelet asked for a device that the resource does not have."""

    def __init__(self, resource: str, device: str) -> None:
        super().__init__(resource, f"unknown device: {device}")
        self.device = device


class DeviceUnhealthy(AllocationError):
    """The kubelet asked for a device that is not fit for work."""

    def __init__(self, device: str, reason: str) -> None:
        super().__init__(f"device {device} is unhealthy: {reason}")
        self.device, self.reason = device, reason


class DeviceHeld(AllocationError):
    """The kubelet asked for a device that a living pod holds."""

    def __init__(self, device: str, holder: str) -> None:
        why = "" if holder.startswith("claim ") else ", the kubelet has forgotten it"
        super().__init__(f"device {device} is held by {holder}{why}")
        self.device, self.holder = device, holder


class ClaimRefused(AllocationError):
    """A claim that cannot be made ready as it is, or not now; the message reaches the pod's event."""


class PartsUnavailable(AllocationError):
    """Parts of GPUs cannot be given at the moment; the kubelet asks again."""

    def __init__(self, reason: str) -> None:
        super().__init__(f"parts of GPUs cannot be given: {reason}")
        self.reason = reason


class NoRoom(AllocationError):
    """No GPU has so much free now; the kubelet asks again, and it succeeds when there is room."""

    def __init__(self, reason: str, looked_at: tuple[str, ...] = ()) -> None:
        super().__init__(reason)
        self.reason, self.looked_at = reason, looked_at


class BindingRefused(AllocationError):
    """A binding goes against the account of the GPUs; the kubelet asks again."""

    def __init__(self, reason: str) -> None:
        super().__init__(f"the parts cannot be given: {reason}")
        self.reason = reason


class CallerUnclear(AllocationError):
    """A container is about to start, and it cannot be told for certain which; the kubelet asks again."""

    def __init__(self, resource: str, reason: str) -> None:
        super().__init__(f"cannot tell yet which container starts with these devices of {resource}: {reason}")
        self.resource, self.reason = resource, reason


class JournalUnavailable(AllocationError):
    """An allocation cannot be made durable, so it must not be answered."""

    def __init__(self, path: str, reason: str) -> None:
        super().__init__(f"cannot write the allocation journal {path}: {reason}")
        self.path, self.reason = path, reason


class MpsRefused(NodeagentError):
    """A daemon of NVIDIA's multi-process service cannot be had, or not now; the message says why."""


class MpsSilent(NodeagentError):
    """A daemon of NVIDIA's multi-process service does not answer."""


class PublicationUnreadable(NodeagentError):
    """What a node says of its GPUs on its object makes no sense to this version."""

    def __init__(self, key: str, reason: str) -> None:
        super().__init__(f"cannot read {key} of the node: {reason}")
        self.key, self.reason = key, reason


class FaultUnknown(NodeagentError):
    """The simulation was asked for a fault it does not know."""

    def __init__(self, fault: str, known: tuple[str, ...]) -> None:
        super().__init__(f"unknown fault {fault!r}: choose one of {', '.join(known)}{suggest(fault, known)}")
        self.fault = fault


class ControlRefused(NodeagentError):
    """A person asked the running agent for something it cannot or will not do; the message says why."""
