"""Simulated nodes that are more than hardware: a board, and settings that show what the agent does with it."""

from typing import Final, NamedTuple

from nodeagent.edge.simulated.profile import list_profiles


class Scene(NamedTuple):
    """A made-up node with settings of its own."""

    profile: str
    """The hardware."""
    settings: tuple[str, ...]
    """As `--set` takes them; the person's own are stronger."""


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
"""By the name that `simulate --profile` takes."""


def find_scene(name: str) -> Scene:
    """The scene of this name; a profile of hardware is one without settings."""
    return SCENES.get(name, Scene(name, ()))


def list_nodes() -> tuple[str, ...]:
    """Every name that `simulate --profile` takes."""
    return (*list_profiles(), *SCENES)
