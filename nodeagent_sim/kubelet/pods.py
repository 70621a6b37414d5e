"""Pods of the stand-in kubelet."""

from enum import StrEnum

from nodeagent.model.values import Value


class PodPhase(StrEnum):
    """The phase of a pod."""

    PENDING = "Pending"
    RUNNING = "Running"
    FAILED = "Failed"


class ContainerSpec(Value, frozen=True):
    """One container and the device resources in its limits."""

    name: str
    resources: dict[str, int]
    init: bool = False
    """An ordinary init container: its devices go on to the next containers."""


class Pod(Value, frozen=True):
    """A pod that was bound to this node."""

    namespace: str
    name: str
    uid: str
    containers: tuple[ContainerSpec, ...]
    phase: PodPhase = PodPhase.PENDING
    reason: str = ""
    message: str = ""

    @property
    def active(self) -> bool:
        """Whether the pod counts: a failed pod holds no devices."""
        return self.phase is not PodPhase.FAILED


class AdmissionRefused(Exception):
    """The kubelet does not start the pod; the phase is Failed, for good."""

    reason = "UnexpectedAdmissionError"

    def __init__(self, pod: str, cause: str) -> None:
        super().__init__(f"Pod was rejected: Allocate failed due to {cause}, which is unexpected")
        self.pod, self.cause = pod, cause


class ContainerStartFailed(Exception):
    """The pod was admitted and keeps its devices, but a container does not start; the kubelet would try again."""

    def __init__(self, pod: str, container: str, cause: str) -> None:
        super().__init__(f"container {container} of pod {pod} does not start: {cause}")
        self.pod, self.container, self.cause = pod, container, cause
