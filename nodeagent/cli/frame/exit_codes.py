"""The exit codes of the process; scripts and unit files rely on the numbers."""

from enum import IntEnum


class ExitCode(IntEnum):
    """Each exit code with its meaning, as in `--help` and the manual."""

    OK = 0
    UNWELL = 1
    BAD_INPUT = 2
    NO_DRIVER = 3
    UNREACHABLE = 4
    COMPONENT_FAILED = 5
    CHECK_FAILED = 6
    NOT_READY = 7
    STOP_OVERRAN = 70
    INTERRUPTED = 130

    @property
    def meaning(self) -> str:
        """The meaning in one line for people."""
        return _MEANINGS[self]


ALWAYS = (ExitCode.OK, ExitCode.BAD_INPUT, ExitCode.INTERRUPTED)
"""The exit codes of every command; the others stand with the commands, in `commands/`."""

_MEANINGS = {
    ExitCode.OK: "done, and nothing is wrong",
    ExitCode.UNWELL: "done, and something on the node is wrong",
    ExitCode.BAD_INPUT: "bad command line, configuration, address or permission; nothing was started or written",
    ExitCode.NO_DRIVER: "no working NVIDIA driver was found, where the command needs one",
    ExitCode.UNREACHABLE: "no agent answers, or what the command needs is missing",
    ExitCode.COMPONENT_FAILED: "a vital part of the agent crashed too often",
    ExitCode.CHECK_FAILED: "`doctor` found something that does not work; 1 if it has only warnings",
    ExitCode.NOT_READY: "done, and a node of the cluster is not ready",
    ExitCode.STOP_OVERRAN: "the agent did not stop in time and ended itself",
    ExitCode.INTERRUPTED: "interrupted from the keyboard",
}
