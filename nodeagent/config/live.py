"""The settings in force, for parts that outlive a reload.

Owns the one reference that a reload moves. Components read `live.now` where they use a value and never keep a copy,
so that a reload reaches them at their next step.
"""

from nodeagent.config.schema import Settings


class LiveSettings:
    """Holds the settings in force."""

    def __init__(self, settings: Settings) -> None:
        self._settings = settings

    @property
    def now(self) -> Settings:
        """The settings in force at this moment."""
        return self._settings

    def replace(self, settings: Settings) -> None:
        """Put others in force; only fields marked reloadable may differ."""
        self._settings = settings
