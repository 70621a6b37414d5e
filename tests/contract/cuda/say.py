"""`say.py LIBRARY QUESTION` prints a JSON text of what a CUDA driver's library answers, on a machine without a GPU.

Each order of calls is tried in a process of its own: a library remembers what was called before, and a call may end it.
"""

import ctypes
import json
import os
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

from tests.contract.child import in_a_child
from tests.contract.cuda.entries import FLAGS, list_questions, list_symbols

NOTHING = ctypes.c_void_p(0)
ZEROES = [NOTHING] * 10


class Place(ctypes.Structure):
    """What the loader says of an address."""

    _fields_ = (
        ("file", ctypes.c_char_p),
        ("base", ctypes.c_void_p),
        ("symbol", ctypes.c_char_p),
        ("at", ctypes.c_void_p),
    )


def locate(address: int | None) -> list[str] | None:
    """The file and the symbol of an address."""
    if not address:
        return None
    place = Place()
    ctypes.CDLL(None).dladdr(ctypes.c_void_p(address), ctypes.byref(place))
    exactly = place.symbol.decode() if place.symbol and place.at == address else "-"
    return [Path(place.file.decode()).name, exactly]


def say_start(path: str) -> Any:
    """Starts with several flags, and what is answered around them."""

    def start(library: ctypes.CDLL) -> Any:
        count = ctypes.c_int(-5)
        before = library.cuDeviceGetCount(ctypes.byref(count))
        codes = [library.cuInit(0), library.cuInit(1), library.cuInit(0)]
        return [
            before,
            *codes,
            library.cuDeviceGetCount(ctypes.byref(count)),
            library.cuDeviceGetCount(NOTHING),
            count.value,
        ]

    def tell_version(library: ctypes.CDLL) -> Any:
        version = ctypes.c_int(-5)
        codes = [library.cuDriverGetVersion(ctypes.byref(version)), library.cuDriverGetVersion(NOTHING)]
        return [*codes, version.value]

    return {"start": in_a_child(path, start), "version": in_a_child(path, tell_version)}


def say_before(path: str) -> Any:
    """Of each function that takes a part in the tests: its code before a start, and after one that failed."""

    def ask(name: str) -> Callable[[ctypes.CDLL], Any]:
        def calls(library: ctypes.CDLL) -> Any:
            first = getattr(library, name)(*ZEROES)
            library.cuInit(0)
            return [first, getattr(library, name)(*ZEROES)]

        return calls

    return {name: in_a_child(path, ask(name)) for name in say_exports(path)}


def say_exports(path: str) -> Any:
    library = ctypes.CDLL(path)
    return [name for name in list_symbols() if hasattr(library, name)]


def say_lacking(path: str) -> Any:
    """Of each function that the library in HOOKS has and the driver has not: its code, called by its own address."""
    driver = ctypes.CDLL(path, mode=ctypes.RTLD_GLOBAL)
    hooks = ctypes.CDLL(os.environ["HOOKS"])
    names = [name for name in list_symbols() if not hasattr(driver, name) and hasattr(hooks, name)]
    return {name: in_a_child(path, lambda _, name=name: getattr(hooks, name)(*ZEROES)) for name in names}  # type: ignore[misc]


def say_lookup(path: str) -> Any:
    """Code, status and place of each question to cuGetProcAddress, in both of its forms."""
    library = ctypes.CDLL(path)
    return [
        [*question, *ask_place(library, *question), *ask_place_first(library, *question)]
        for question in list_questions()
    ]


def ask_place(library: ctypes.CDLL, base: str, version: int, flags: int) -> list[Any]:
    place, status = ctypes.c_void_p(0), ctypes.c_int(-9)
    words = (base.encode(), ctypes.byref(place), version, ctypes.c_uint64(flags))
    code = library.cuGetProcAddress_v2(*words, ctypes.byref(status))
    return [code, status.value, locate(place.value)]


def ask_place_first(library: ctypes.CDLL, base: str, version: int, flags: int) -> list[Any]:
    place = ctypes.c_void_p(0)
    code = library.cuGetProcAddress(base.encode(), ctypes.byref(place), version, ctypes.c_uint64(flags))
    return [code, locate(place.value)]


def say_odd(path: str) -> Any:
    """Questions that no program in its right mind asks."""
    library = ctypes.CDLL(path)
    place = ctypes.c_void_p(0)
    words = (b"cuInit", ctypes.byref(place), 12000, ctypes.c_uint64(0))
    return {
        "flags": [ask_place(library, "cuInit", 12000, flags)[0] for flags in (*FLAGS, 3, 4, 5, 8, 77)],
        "no such name": ask_place(library, "cuNobody", 12000, 0),
        "an empty name": ask_place(library, "", 12000, 0),
        "a symbol": ask_place(library, "cuMemAlloc_v2", 12000, 0),
        "a version to come": ask_place(library, "cuInit", 99999, 0)[:2],
        "a version before all": ask_place(library, "cuInit", 1999, 0),
        "no status": library.cuGetProcAddress_v2(*words, None),
        "no name in the first form": ask_place_first(library, "cuNobody", 12000, 0),
    }


def say_names(path: str) -> Any:
    """The library's names and words for all codes that it knows."""
    library = ctypes.CDLL(path)
    found = {}
    for code in range(-1, 1000):
        name, words = ctypes.c_char_p(b"untouched"), ctypes.c_char_p(b"untouched")
        codes = (library.cuGetErrorName(code, ctypes.byref(name)), library.cuGetErrorString(code, ctypes.byref(words)))
        if any(one != 1 for one in codes) or name.value or words.value:
            found[code] = [*codes, (name.value or b"").decode(), (words.value or b"").decode()]
    return found


if __name__ == "__main__":
    sys.stdout.write(json.dumps(globals()[f"say_{sys.argv[2]}"](sys.argv[1])))
