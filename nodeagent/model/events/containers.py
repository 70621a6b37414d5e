"""What happened to what container runtimes read."""

from nodeagent.model.values import Value


class CdiSpecsWritten(Value, frozen=True):
    """CDI specifications were written or taken away, because they were not what they should be."""

    written: tuple[str, ...]
    removed: tuple[str, ...]
    generation: int


class RuntimeConfigured(Value, frozen=True):
    """The container runtime's configuration was written; it counts from the runtime's next start."""

    paths: tuple[str, ...]
    repair: bool = False
    """Whether somebody had undone it."""
    unproved: str = ""
    """Why it could not be shown on the side that the runtime comes up with it; empty when it was."""


class RuntimeRestarted(Value, frozen=True):
    """The container runtime was restarted, and rolled back where that failed."""

    command: str
    failure: str = ""
    """Why it was rolled back; empty when all is well."""
