"""Why the agent cannot start.

StartRefused
├── DirectoryUnusable    a directory the agent must write
├── AgentAlreadyRuns     another agent holds this node's lock
├── JournalTooNew        a standby could not go on from the journal of the agent at work
└── DriverRequired       no working driver, and the command line will not wait

Beside these, the errors of edge.http, SourceUnusable and ConfigurationInvalid are passed on.
"""


class StartRefused(Exception):
    """The agent cannot start; the message names the obstacle, its place, and the remedy."""


class DirectoryUnusable(StartRefused):
    """A directory the agent must write cannot be made or written."""

    def __init__(self, key: str, path: str, reason: str) -> None:
        super().__init__(
            f"{key}: cannot use directory {path}: {reason}, or set `{key}` to a directory that can be written"
        )


class AgentAlreadyRuns(StartRefused):
    """Two agents on the same node would hand out the same GPU twice."""

    def __init__(self, key: str, path: str, reason: str) -> None:
        super().__init__(f"{reason}, or give this one its own `{key}` (now {path})")


class JournalTooNew(StartRefused):
    """The agent at work writes a journal that a standby of an earlier version cannot read."""

    def __init__(self, path: str, reason: str) -> None:
        super().__init__(f"cannot take over from the nodeagent that writes {path}: {reason}")


class DriverRequired(StartRefused):
    """`--require-driver` on a node without a working driver."""

    def __init__(self, detail: str, remedy: str) -> None:
        super().__init__(f"no working NVIDIA driver: {detail}; {remedy}")
