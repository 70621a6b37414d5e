"""The errors between the agent and the kubelet.

KubeletError
├── KubeletUnavailable         the kubelet is not there or does not answer: wait for the kubelet
├── RegistrationRefused        the kubelet has looked at the plugin and says no
├── PodResourcesUnavailable    the kubelet's list of devices in use cannot be read now
├── PodsUnavailable            the kubelet tells of no pods: none of its kind, not yet, or no longer
└── CheckpointUnreadable       the kubelet's checkpoint file is missing or makes no sense
"""

from nodeagent.model.errors import NodeagentError


class KubeletError(NodeagentError):
    """An error between the agent and the kubelet."""


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

    @property
    def is_path_spent(self) -> bool:
        """Whether the kubelet refuses the plugin's socket path until the kubelet's next start.

        Kubelets from 1.37 do so for a path whose former stream has not ended for them.
        """
        return "device plugin already connected" in self.reason


class PodResourcesUnavailable(KubeletError):
    """The kubelet's pod resources service does not answer."""

    def __init__(self, attempted: str, socket: str, reason: str) -> None:
        super().__init__(f"cannot {attempted} at {socket}: {reason}; check that the directory is mounted and readable")
        self.attempted, self.socket, self.reason = attempted, socket, reason


class PodsUnavailable(KubeletError):
    """The kubelet's pods API is not served, or its stream broke."""

    def __init__(self, socket: str, reason: str) -> None:
        super().__init__(
            f"cannot follow pods at {socket}: {reason}; it is tried again, and kubelets before 1.37 serve none"
        )
        self.socket, self.reason = socket, reason


class CheckpointUnreadable(KubeletError):
    """The kubelet's checkpoint cannot be read."""

    def __init__(self, path: str, reason: str) -> None:
        super().__init__(f"cannot read the kubelet's checkpoint {path}: {reason}")
        self.path, self.reason = path, reason
