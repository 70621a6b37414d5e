"""Changes of files that container runtimes read."""

from nodeagent.model.values import Value


class CdiSpecsWritten(Value, frozen=True):
    """CDI specifications were written or removed, because they differed from the plan."""

    written: tuple[str, ...]
    removed: tuple[str, ...]
    generation: int


class RuntimeConfigured(Value, frozen=True):
    """The container runtime's configuration was written; it counts from the runtime's next start."""

    paths: tuple[str, ...]
    repair: bool = False
    """Whether another program had undone the configuration."""
    unproved: str = ""
    """Why a trial start with the configuration was not possible; empty after a trial."""


class RuntimeRestarted(Value, frozen=True):
    """The container runtime was restarted, and rolled back where the restart failed."""

    command: str
    failure: str = ""
    """Why the configuration was rolled back; empty when all is well."""
