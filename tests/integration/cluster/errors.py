"""What can go wrong with the test cluster, one class per situation a caller handles differently.

ClusterError
├── RequirementsMissing   this machine lacks something; exit status 4, nothing was started
├── UnknownVersion        a version was asked for that cannot be built
├── NotBuilt              tests were started before the programs were built
├── BuildFailed           the Go tool chain refused; exit status 1
├── ClusterBusy           another process holds this cluster; exit status 1
├── PathTooLong           the scratch directory leaves no room for unix socket names
├── NotUp                 something was asked of a cluster that is not there
├── ProcessDied           a part of the cluster ended when it should be running
├── CommandFailed         a helper program (openssl, ctr, kubectl, crictl) refused
├── WaitTimedOut          something did not become true in time
├── ApiRefused            the API server answered with an error status
├── ApiUnreachable        the API server did not answer at all
└── LeftBehind            after `down` something of the cluster is still there
"""

from collections.abc import Sequence
from pathlib import Path


class ClusterError(Exception):
    """Anything this harness reports to people in one line; the command line exits with `exit_status`."""

    exit_status = 1


class RequirementsMissing(ClusterError):
    """The machine cannot run the cluster."""

    exit_status = 4

    def __init__(self, missing: Sequence[str]) -> None:
        self.missing = tuple(missing)
        super().__init__("the real cluster cannot run here: " + "; ".join(self.missing))


class UnknownVersion(ClusterError):
    """The versions that were asked for name a part or a release that is not there: wrong usage, exit status 2."""

    exit_status = 2

    def __init__(self, asked: str, known: str) -> None:
        super().__init__(f"NODEAGENT_CLUSTER_VERSIONS: {asked!r} is not known; {known}")


class NotBuilt(ClusterError):
    """A test session does not build: it would run into the time limit of its first test."""

    def __init__(self, versions: object) -> None:
        words = f"NODEAGENT_CLUSTER_VERSIONS='{versions}' " if str(versions) else ""
        command = f"{words}python -m tests.integration.cluster build"
        super().__init__(f"the cluster's programs are not built: run `{command}` first")


class BuildFailed(ClusterError):
    def __init__(self, program: str, log: Path, last_lines: str) -> None:
        super().__init__(f"go could not build {program}; the whole output is in {log}; it ended with:\n{last_lines}")
        self.program, self.log = program, log


class ClusterBusy(ClusterError):
    """Somebody else is starting, stopping or testing on this cluster."""

    def __init__(self, root: Path, holder: str) -> None:
        super().__init__(f"the cluster in {root} is in use by {holder}; wait for it, or choose another --root")
        self.root = root


class PathTooLong(ClusterError):
    """Unix socket names below the scratch directory would pass the kernel's limit."""

    def __init__(self, root: Path, longest: int) -> None:
        super().__init__(f"the scratch directory {root} is too long for unix sockets; keep it within {longest} bytes")


class NotUp(ClusterError):
    """Nothing can be started in a cluster whose namespace is gone."""

    def __init__(self, root: Path) -> None:
        super().__init__(f"no cluster is up in {root}: run `python -m tests.integration.cluster up` first")


class ProcessDied(ClusterError):
    """A part of the cluster is not running although it should be."""

    def __init__(self, name: str, log: Path, last_lines: str) -> None:
        super().__init__(f"{name} is not running; its log {log} ends with:\n{last_lines}")
        self.name = name


class CommandFailed(ClusterError):
    """A helper program exited with an error."""

    def __init__(self, command: Sequence[str], status: int, output: str) -> None:
        super().__init__(f"`{' '.join(command)}` exited with {status}: {output.strip() or 'no output'}")
        self.command, self.status, self.output = tuple(command), status, output


class WaitTimedOut(ClusterError):
    """A condition did not come true before its deadline."""

    def __init__(self, what: str, timeout_seconds: float, last_seen: str) -> None:
        super().__init__(f"waited {timeout_seconds:g} s for {what}; last seen: {last_seen}")
        self.what, self.last_seen = what, last_seen


class ApiRefused(ClusterError):
    """The API server answered, and the answer is no."""

    def __init__(self, method: str, path: str, status: int, message: str) -> None:
        super().__init__(f"{method} {path} was refused with status {status}: {message}")
        self.status, self.message = status, message


class ApiUnreachable(ClusterError):
    """No answer from the API server: it is down, starting, or stuck."""

    def __init__(self, method: str, path: str, reason: str) -> None:
        super().__init__(f"{method} {path} got no answer: {reason}")


class LeftBehind(ClusterError):
    """`down` finished, yet something of the cluster is still on the machine."""

    def __init__(self, findings: Sequence[str]) -> None:
        self.findings = tuple(findings)
        super().__init__("the cluster left something behind: " + "; ".join(self.findings))
