"""The settings in force, for components that outlive a reload.

Owns the one reference moved by a reload. Components read `live.now` at each use of a value and never keep a copy, so
that a reload takes effect at the next step.
"""

from nodeagent.config.schema import Settings


class LiveSettings:
    """Holds the settings in force."""

    def __init__(self, settings: Settings) -> None:
        self.now = settings
        """The settings in force; only `replace` sets them."""

    def replace(self, settings: Settings) -> None:
        """Put new settings in force; only fields marked reloadable may differ."""
        self.now = settings
