"""The named configurations of the node."""

from typing import Protocol


class ConfigurationControl(Protocol):
    """The named configurations of the node, chosen by the cluster."""

    async def follow_label(self, label: str, *, cause: int | None = None) -> str:
        """Put the configuration named by the node's label in force, or the default for no name; reports the changes.

        Raises:
            ControlRefused: No configuration of that name, or an invalid configuration; the one before stays in force.
        """
        ...
