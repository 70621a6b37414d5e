"""Errors of a profile before the simulation begins.

NodeagentError
├── UnknownProfile  no profile of the given name
└── InvalidProfile  a profile's file cannot be read, or contradicts itself
"""

from nodeagent.model.errors import NodeagentError
from nodeagent.model.wording import suggest


class UnknownProfile(NodeagentError):
    """No profile has the given name."""

    def __init__(self, name: str, known: tuple[str, ...]) -> None:
        super().__init__(f"no simulated profile {name!r}: known are {', '.join(known)}{suggest(name, known)}")
        self.name, self.known = name, known


class InvalidProfile(NodeagentError):
    """A profile's file cannot be read or contradicts itself."""

    def __init__(self, path: str, problem: str) -> None:
        super().__init__(f"cannot use the simulated profile in {path}: {problem}")
        self.path, self.problem = path, problem
