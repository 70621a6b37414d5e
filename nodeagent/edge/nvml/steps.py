"""What the worker process is called while it asks a GPU: when it hangs or dies, its name says over which one.

People see it too, in `ps`. Both sides use it, so it imports nothing.
"""

IDLE = "nvml idle"
_ASKING = "nvml GPU "


def name_step(index: int) -> str:
    """The name while the GPU at this index is asked."""
    return f"{_ASKING}{index}"


def parse_step(name: str) -> int | None:
    """The index of the GPU that was being asked; nothing where none was."""
    number = name.removeprefix(_ASKING)
    return int(number) if name.startswith(_ASKING) and number.isdecimal() else None
