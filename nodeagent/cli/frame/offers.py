"""What may stand for an argument, for completion in shells: names that are known without asking anybody."""

from nodeagent.config.schema import Settings
from nodeagent.config.sources import walk_knobs
from nodeagent.edge.simulated.faults import FAULTS
from nodeagent.edge.simulated.profile import list_profiles


def list_sources() -> tuple[str, ...]:
    """Where GPUs may come from."""
    return ("nvml", *(f"simulated:{name}" for name in list_profiles()))


def list_settings() -> tuple[str, ...]:
    """Every setting, up to where its value begins."""
    return tuple(sorted(f"{'.'.join(path)}=" for path, _ in walk_knobs(Settings)))


def list_faults() -> tuple[str, ...]:
    """What a simulation can be asked for, and the list of it."""
    return tuple(sorted({*FAULTS, "help"}))
