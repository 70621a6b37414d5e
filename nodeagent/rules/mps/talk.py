"""The commands to a control daemon, and the meaning of the answers.

Owns the commands. Undocumented answers are not read: limits are set, and then asked for.
"""

import re
from collections.abc import Iterable, Sequence
from typing import Final

from nodeagent.model.ids import GpuUuid
from nodeagent.model.mps import MpsLimits

_PERCENTAGE = "get_default_active_thread_percentage"
LOOK = ("get_server_list",)
_SIZE: Final = re.compile(r"(?P<number>[0-9]{1,9})(?P<unit>[GM])")
_MIB: Final = {"M": 1, "G": 1024}
"""A size in G has lost its MiB: drivers 535 and 550 report 20389M as 19G. The exact limit is the value set."""


def render_defaults(gpus: Sequence[GpuUuid], limits: MpsLimits) -> tuple[str, ...]:
    """Set the limits of clients of future servers, then ask for the limits; `find_refusal` reads the answer."""
    memory = _list_memory(gpus, limits)
    threads = limits.thread_percentage
    return (
        *(f"set_default_device_pinned_mem_limit {place} {size}M" for place, size in memory),
        *((f"set_default_active_thread_percentage {threads}",) if threads is not None else ()),
        *_ask_limits(gpus, limits),
    )


def render_look(gpus: Sequence[GpuUuid], limits: MpsLimits) -> tuple[str, ...]:
    """Ask for servers and limits; `read_servers` and `find_refusal` read the answer."""
    return (*LOOK, *_ask_limits(gpus, limits))


def read_servers(gpus: Sequence[GpuUuid], limits: MpsLimits, answer: Sequence[str]) -> tuple[int, ...]:
    """The processes of the daemon's servers, by an answer with the wanted limits."""
    return read_pids(answer[: len(answer) - len(_ask_limits(gpus, limits))])


def find_refusal(gpus: Sequence[GpuUuid], limits: MpsLimits, answer: Sequence[str]) -> str:
    """The refused setting, in words; empty where the daemon has the wanted limits."""
    memory = _list_memory(gpus, limits)
    asked = len(_ask_limits(gpus, limits))
    if len(answer) < asked:
        return f"it does not tell its limits: {_quote(answer)}"
    *told, percentage = answer[-asked:]
    threads = 100 if limits.thread_percentage is None else limits.thread_percentage
    if _read_number(percentage) != threads:
        return f"it does not take {threads} as active thread percentage: {_quote(answer)}"
    for (place, size), one in zip(memory, told, strict=True):
        if not _tells_size(one, size):
            return f"it does not take {size}M as memory limit of device {place}: {_quote(answer)}"
    return ""


def render_server_limits(server: int, gpus: Sequence[GpuUuid], limits: MpsLimits) -> tuple[str, ...]:
    """Set the limits of a running server's future clients."""
    threads = 100 if limits.thread_percentage is None else limits.thread_percentage
    return (
        *(f"set_device_pinned_mem_limit {server} {place} {size}M" for place, size in _list_memory(gpus, limits)),
        f"set_active_thread_percentage {server} {threads}",
    )


def render_quit(seconds: int) -> str:
    """Have the daemon end after its clients, and after so many seconds at the latest."""
    return f"quit -t {seconds}"


def read_pids(answer: Iterable[str]) -> tuple[int, ...]:
    """Process ids, one a line; any other line is no process."""
    return tuple(int(line) for line in map(str.strip, answer) if line.isascii() and line.isdigit())


def _ask_limits(gpus: Sequence[GpuUuid], limits: MpsLimits) -> tuple[str, ...]:
    return (*(f"get_default_device_pinned_mem_limit {place}" for place, _ in _list_memory(gpus, limits)), _PERCENTAGE)


def _list_memory(gpus: Sequence[GpuUuid], limits: MpsLimits) -> list[tuple[int, int]]:
    """By the daemon's own count of devices."""
    return [(place, limits.memory_mib[gpu]) for place, gpu in enumerate(gpus) if gpu in limits.memory_mib]


def _tells_size(text: str, size_mib: int) -> bool:
    """Whether a reported limit is the wanted one, in a unit of the daemon's choice, rounded down."""
    found = _SIZE.fullmatch(text.strip())
    if found is None:
        return False
    told, unit = int(found["number"]), _MIB[found["unit"]]
    return told * unit <= size_mib < (told + 1) * unit


def _read_number(text: str) -> float | None:
    try:
        return float(text)
    except ValueError:
        return None


def _quote(answer: Sequence[str]) -> str:
    said = " ".join(" ".join(answer).split())[:200]
    return f"it said {said!r}" if said else "it said nothing"
