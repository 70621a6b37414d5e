"""`say.py LIBRARY QUESTION` prints a JSON text of what the library answers, on a machine without a driver.

Each order of calls is tried in a process of its own, because a library remembers what was called before.
"""

import ctypes
import json
import sys
from collections.abc import Callable
from typing import Any

from nodeagent.edge.nvml.worker.main import Worker
from tests.contract.child import in_a_child
from tests.contract.nvml.worker_calls import list_symbols
from tests.fakes.nvml.build import list_functions

ROOM = 96
ZEROES = [ctypes.c_void_p(0)] * 8
"""For a function that is called before the library is ready: it looks at none of its arguments."""


def say_before(path: str) -> Any:
    """Of each function: what it answers at first, after an initialisation that failed, and after a shutdown."""

    def ask(name: str) -> Callable[[ctypes.CDLL], Any]:
        def calls(library: ctypes.CDLL) -> Any:
            function = getattr(library, name, None)
            if function is None:
                return None
            first = function(*ZEROES)
            library.nvmlInitWithFlags(0)
            second = function(*ZEROES)
            library.nvmlShutdown()
            return [first, second, function(*ZEROES)]

        return calls

    return {name: in_a_child(path, ask(name)) for name in sorted({*list_functions(), *list_symbols()})}


def say_exports(path: str) -> Any:
    library = ctypes.CDLL(path)
    return [name for name in sorted({*list_functions(), *list_symbols()}) if hasattr(library, name)]


def say_start(path: str) -> Any:
    """Orders of start and end, and the codes of each call."""
    start: tuple[str, list[int]] = ("nvmlInit_v2", [])
    end: tuple[str, list[int]] = ("nvmlShutdown", [])
    orders = {
        "end": [end, end],
        "start twice": [start, start, end, end, end],
        "flags": [("nvmlInitWithFlags", [flags]) for flags in (0, 1, 2, 3, 0xFFFFFFFF)],
        "start, end, start": [start, end, start],
    }
    return {
        name: in_a_child(path, lambda library, calls=calls: [getattr(library, call)(*words) for call, words in calls])  # type: ignore[misc]
        for name, calls in orders.items()
    }


def say_version(path: str) -> Any:
    """NVML's version in rooms of several sizes, without an initialisation."""

    def ask(library: ctypes.CDLL) -> Any:
        room = ctypes.create_string_buffer(ROOM)
        code = library.nvmlSystemGetNVMLVersion(room, ROOM)
        text = room.value.decode()
        lengths = {size: library.nvmlSystemGetNVMLVersion(room, size) for size in (len(text) + 1, len(text), 1, 0)}
        return {
            "code": code,
            "text": text,
            "enough": lengths[len(text) + 1],
            "too little": [lengths[size] for size in (len(text), 1, 0)],
            "nowhere": library.nvmlSystemGetNVMLVersion(None, ROOM),
        }

    return in_a_child(path, ask)


def say_strings(path: str) -> Any:
    """The library's words for all codes."""
    library = ctypes.CDLL(path)
    library.nvmlErrorString.restype = ctypes.c_char_p
    return {str(code): library.nvmlErrorString(code).decode() for code in (*range(40), 998, 999, 1000, 0xFFFFFFFF)}


def say_worker(path: str) -> Any:
    """What the agent's worker makes of it, asked for the library by its path."""
    return Worker("", path, -1).answer({"do": "open"})


if __name__ == "__main__":
    sys.stdout.write(json.dumps(globals()[f"say_{sys.argv[2]}"](sys.argv[1])))
