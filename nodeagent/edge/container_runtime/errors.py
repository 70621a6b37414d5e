"""The errors between the agent and the container runtime.

ContainerRuntimeError
├── RuntimeSilent          a runtime does not answer on the socket
├── ConfigRefused          the runtime's own tool does not accept the new configuration
├── ProgramMissing         the runtime runs, but the program is gone, for a check as for a restart
├── RestartFailed          the runtime could not be restarted
├── BackupUnreadable       the record of the files' former content is damaged
└── FileChangedMeanwhile   another writer changed a file between our reading and our writing
"""

from collections.abc import Sequence
from pathlib import Path

from nodeagent.model.errors import NodeagentError


class ContainerRuntimeError(NodeagentError):
    """An error between the agent and the container runtime."""


class RuntimeSilent(ContainerRuntimeError):
    """A runtime does not answer."""

    def __init__(self, socket: str, reason: str) -> None:
        super().__init__(f"no answer at {socket}: {reason}")
        self.socket, self.reason = socket, reason


class ConfigRefused(ContainerRuntimeError):
    """The runtime's own tool does not accept a configuration."""

    def __init__(self, tool: str, said: str) -> None:
        super().__init__(f"{tool} refuses the new configuration: {said}: nothing was written")
        self.tool, self.said = tool, said


class ProgramMissing(ContainerRuntimeError):
    """The program of a running daemon was removed or is being replaced."""

    def __init__(self, program: str) -> None:
        super().__init__(
            f"cannot have the new configuration judged: {program}, which runs, is no longer there, so that a restart"
            " would fail: nothing was written; finish its upgrade or install it again"
        )
        self.program = program


class RestartFailed(ContainerRuntimeError):
    """The runtime could not be restarted."""

    def __init__(self, command: Sequence[str], said: str) -> None:
        super().__init__(f"`{' '.join(command)}` failed: {said}: run it by hand and read its log")
        self.command, self.said = tuple(command), said


class BackupUnreadable(ContainerRuntimeError):
    """The record of our changes is damaged."""

    def __init__(self, path: Path, reason: str) -> None:
        super().__init__(f"cannot read {path}: {reason}: compare the runtime's files by hand, then remove it")
        self.path, self.reason = path, reason


class FileChangedMeanwhile(ContainerRuntimeError):
    """Another writer was faster."""

    def __init__(self, path: str) -> None:
        super().__init__(f"{path} was changed by somebody else while it was being edited: try again")
        self.path = path
