"""What is said to a control daemon, and what its answers mean.

Owns the commands. Answers that nobody documents are not read: limits are set, and then asked for.
"""

from collections.abc import Iterable, Sequence

from nodeagent.model.ids import GpuUuid
from nodeagent.model.mps import MpsLimits

_PERCENTAGE = "get_default_active_thread_percentage"
LOOK = ("get_server_list",)


def render_defaults(gpus: Sequence[GpuUuid], limits: MpsLimits) -> tuple[str, ...]:
    """Set the limits of clients of servers that are started from now on, then ask for them; `find_refusal` reads it."""
    memory = _list_memory(gpus, limits)
    threads = limits.thread_percentage
    return (
        *(f"set_default_device_pinned_mem_limit {place} {size}M" for place, size in memory),
        *((f"set_default_active_thread_percentage {threads}",) if threads is not None else ()),
        *(f"get_default_device_pinned_mem_limit {place}" for place, _ in memory),
        _PERCENTAGE,
    )


def find_refusal(gpus: Sequence[GpuUuid], limits: MpsLimits, answer: Sequence[str]) -> str:
    """What was not taken, in words; empty where the daemon has the limits that it shall have."""
    memory = _list_memory(gpus, limits)
    asked = len(memory) + 1
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
    """Set the limits of clients that a running server has from now on."""
    threads = 100 if limits.thread_percentage is None else limits.thread_percentage
    return (
        *(f"set_device_pinned_mem_limit {server} {place} {size}M" for place, size in _list_memory(gpus, limits)),
        f"set_active_thread_percentage {server} {threads}",
    )


def render_quit(seconds: int) -> str:
    """Have it end: when its clients have, after so many seconds at the latest."""
    return f"quit -t {seconds}"


def read_pids(answer: Iterable[str]) -> tuple[int, ...]:
    """Process ids, one a line; whatever else is said is no process."""
    return tuple(int(line) for line in map(str.strip, answer) if line.isascii() and line.isdigit())


def _list_memory(gpus: Sequence[GpuUuid], limits: MpsLimits) -> list[tuple[int, int]]:
    """By the daemon's own count of its devices."""
    return [(place, limits.memory_mib[gpu]) for place, gpu in enumerate(gpus) if gpu in limits.memory_mib]


def _tells_size(text: str, size_mib: int) -> bool:
    """Whether a limit is told that is this one; in which unit a daemon tells it differs."""
    digits = "".join(letter for letter in text if letter.isdigit() or letter == ".")
    number = _read_number(digits)
    # 2048M may come back as 2G, and bytes as bytes.
    return number is not None and any(abs(number * unit - size_mib) < 1 for unit in (1, 1 << 10, 2**-10, 2**-20))


def _read_number(text: str) -> float | None:
    try:
        return float(text)
    except ValueError:
        return None


def _quote(answer: Sequence[str]) -> str:
    said = " ".join(" ".join(answer).split())[:200]
    return f"it said {said!r}" if said else "it said nothing"
