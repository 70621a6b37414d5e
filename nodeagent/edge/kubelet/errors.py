"""What can go wrong between the agent and the kubelet.

KubeletError
├── KubeletUnavailable         the kubelet is not there or does not answer: wait for it
├── RegistrationRefused        the kubelet has looked at the plugin and says no
├── PodResourcesUnavailable    the account of who holds what cannot be had now
│   └── PodUnknown             the kubelet knows no active pod of that name
└── CheckpointUnreadable       the kubelet's own file is missing or makes no sense
"""

from nodeagent.model.errors import NodeagentError


class KubeletError(NodeagentError):
    """Something between the agent and the kubelet."""


class KubeletUnavailable(KubeletError):
    """The kubelet's socket is missing, closed or silent."""

    def __init__(self, attempted: str, socket: str, reason: str) -> None:
        super().__init__(f"cannot {attempted} at {socket}: {reason}; it is tried again")
        self.attempted, self.socket, self.reason = attempted, socket, reason


class RegistrationRefused(KubeletError):
    """The kubelet does not take the plugin."""

    def __init__(self, resource: str, socket: str, reason: str) -> None:
        super().__init__(f"the kubelet at {socket} refuses {resource}: {reason}")
        self.resource, self.socket, self.reason = resource, socket, reason


class PodResourcesUnavailable(KubeletError):
    """The kubelet does not say who holds what."""

    def __init__(self, attempted: str, socket: str, reason: str) -> None:
        super().__init__(f"cannot {attempted} at {socket}: {reason}; check that the directory is mounted and readable")
        self.attempted, self.socket, self.reason = attempted, socket, reason


class PodUnknown(PodResourcesUnavailable):
    """The kubelet knows no active pod of that name."""


class CheckpointUnreadable(KubeletError):
    """The kubelet's checkpoint tells nothing."""

    def __init__(self, path: str, reason: str) -> None:
        super().__init__(f"cannot read the kubelet's checkpoint {path}: {reason}")
        self.path, self.reason = path, reason
