"""Values of arguments, for completion in shells: names known without a question to an agent."""

from nodeagent.config.schema import Settings
from nodeagent.config.sources import walk_knobs
from nodeagent.edge.simulated.faults import FAULTS
from nodeagent.edge.simulated.profile import list_profiles


def list_sources() -> tuple[str, ...]:
    """The possible sources of GPUs."""
    return ("nvml", *(f"simulated:{name}" for name in list_profiles()))


def list_settings() -> tuple[str, ...]:
    """Every setting, up to the beginning of its value."""
    return tuple(sorted(f"{'.'.join(path)}=" for path, _ in walk_knobs(Settings)))


def list_faults() -> tuple[str, ...]:
    """The faults of a simulation, and the word that lists them."""
    return tuple(sorted({*FAULTS, "help"}))
