"""Simulated nodes with settings of their own: a board, and settings to show the agent's work on it."""

from typing import Final, NamedTuple

from nodeagent.edge.simulated.profile import list_profiles


class Scene(NamedTuple):
    """A simulated node with settings of its own."""

    profile: str
    """The hardware."""
    settings: tuple[str, ...]
    """In the form of `--set`; the user's own settings are stronger."""


SCENES: Final = {
    "fractions": Scene(
        "dgx-h100",
        (
            "fractions.enabled=true",
            "fractions.enforcement=library",
            'doors.rules=[{"gpus": ["0", "1", "2", "3"], "door": "fractions"}]',
        ),
    ),
}
"""Scenes by name, as for `simulate --profile`."""


def find_scene(name: str) -> Scene:
    """The scene of this name; a hardware profile is a scene without settings."""
    return SCENES.get(name, Scene(name, ()))


def list_nodes() -> tuple[str, ...]:
    """Every name for `simulate --profile`."""
    return (*list_profiles(), *SCENES)
