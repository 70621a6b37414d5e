"""The worker's process name while a GPU is asked: the name of a hung or dead worker shows the GPU.

The name is visible in `ps`. Both sides use the module, which imports nothing.
"""

IDLE = "nvml idle"
_ASKING = "nvml GPU "


def name_step(index: int) -> str:
    """The process name while the GPU at an index is asked."""
    return f"{_ASKING}{index}"


def parse_step(name: str) -> int | None:
    """The index of the GPU in a process name; `None` without a GPU."""
    number = name.removeprefix(_ASKING)
    return int(number) if name.startswith(_ASKING) and number.isdecimal() else None
