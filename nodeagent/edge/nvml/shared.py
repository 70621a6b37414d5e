"""Names used by the agent's and the worker's side. Refuses imports, which would cost either side memory.

Owns the names of driver reports, and the worker's process name while a GPU is asked: `ps` shows the GPU over which a
worker hung or died.
"""

TYPE_CHECKING = False

if TYPE_CHECKING:
    # The worker does without `typing`, 0.7 MB; type checkers take this branch by the name of the variable.
    from typing import Any as Any  # noqa: PLC0414 -- the alias is what says that others may import it from here
else:
    Any = object

XID = 0x8
KINDS: dict[int, str] = {
    0x2: "double_bit_ecc",
    XID: "xid",
    0x100: "mig_layout",
    0x200: "single_bit_ecc_storm",
    0x400: "dram_retirement",
    0x800: "dram_retirement_failure",
    0x1000: "non_fatal_poison",
    0x2000: "fatal_poison",
    0x4000: "unavailable",
    0x8000: "recovery_action",
}
WANTED = sum(KINDS)

IDLE = "nvml idle"
_ASKING = "nvml GPU "


def name_step(index: int) -> str:
    """The process name while the GPU at an index is asked."""
    return f"{_ASKING}{index}"


def parse_step(name: str) -> int | None:
    """The index of the GPU in a process name; `None` without a GPU."""
    number = name.removeprefix(_ASKING)
    return int(number) if name.startswith(_ASKING) and number.isdecimal() else None
