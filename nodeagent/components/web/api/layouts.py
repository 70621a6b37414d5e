"""Where the agent's MIG layouts come from, beside layouts generated from the hardware; pure."""

from nodeagent.config.sections.mig import LayoutEntry, MigSettings
from nodeagent.model.values import Value


class LayoutsRecord(Value, frozen=True):
    """The settings of the running agent that name layouts."""

    layouts: tuple[LayoutEntry, ...] = ()
    layouts_file: str = ""
    """The path of the file as the agent sees it, in whose own root it may lie; empty for none."""


def record_layouts(settings: MigSettings) -> LayoutsRecord:
    """The layouts in the settings now."""
    file = settings.layouts_file
    return LayoutsRecord(layouts=settings.layouts, layouts_file="" if file is None else str(file))
