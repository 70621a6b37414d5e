"""The errors of the configuration.

    ConfigurationInvalid     the files, the environment and the flags together do not make valid settings

There is one error because there is one thing to do about it: show every problem and keep what is in force, or exit 2
at start.
"""

from msgspec import Struct

from nodeagent.config.tree import Origin


class Problem(Struct, frozen=True):
    """One complaint: where it was written, which setting it concerns, what is wrong and what to do."""

    origin: Origin
    path: str
    message: str

    def __str__(self) -> str:
        place = f"{self.path}: " if self.path else ""
        return f"{self.origin}: {place}{self.message}"


class ConfigurationInvalid(Exception):  # noqa: N818  # named for the situation, as all our errors are
    """The configuration cannot be used; `problems` holds every reason, not only the first."""

    def __init__(self, problems: tuple[Problem, ...]) -> None:
        super().__init__("\n".join(map(str, problems)))
        self.problems = problems
