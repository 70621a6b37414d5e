"""The first lines that run in the worker process: they keep it small, then hand over.

pynvml, json and the worker import six modules for next to nothing: `ctypes.util` for a function that is used on
Windows only, `string`, `functools` and `collections.abc` for a name each, `re` for what C code does where there is any,
`threading` for a lock and a thread that nobody waits for. Those bring subprocess, tempfile, random, enum, collections
and more: 3 MB and half of the start-up time (measured on Python 3.11, x86-64). So stand-ins take their places while all
this is imported. A release that does not like this is imported whole; tests hold both ways to the same.
"""

import _collections_abc
import _thread
import sys
from types import ModuleType

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable

_OURS = "nodeagent.edge.nvml.worker.main"


def main(arguments: list[str]) -> None:
    """Become the worker: `arguments` are the driver root and the library to load, either possibly empty."""
    load_slim()
    from nodeagent.edge.nvml.worker.main import serve  # noqa: PLC0415 -- imports pynvml, so it comes after the stand-ins

    serve(*arguments)


def main_partition(arguments: list[str]) -> None:
    """Become the worker that cuts GPUs; the arguments are the same."""
    load_slim()
    from nodeagent.edge.nvml.worker.partition import serve  # noqa: PLC0415 -- as above

    serve(*arguments)


def load_slim() -> None:
    """Import the worker and what it needs, with stand-ins; leave nothing behind where that fails."""
    before = set(sys.modules)
    stand_ins = {name: module for name, module in make_stand_ins().items() if name not in sys.modules}
    sys.modules.update(stand_ins)
    try:
        __import__(_OURS)
    except (AttributeError, ImportError, TypeError):
        for name in set(sys.modules) - before:
            del sys.modules[name]
    finally:
        # Whoever imports one of them later, such as the interpreter when it reports a crash, gets the real one.
        for name in stand_ins:
            sys.modules.pop(name, None)


def make_stand_ins() -> dict[str, ModuleType]:
    """By name; each holds what is used of it, and lacks the rest, so that any other use is found out at once."""
    patterns = dict.fromkeys(("VERBOSE", "MULTILINE", "DOTALL"), 0)
    return {
        "ctypes.util": _make("ctypes.util", find_library=None),
        "string": _make("string", capwords=capitalize_words),
        "re": _make("re", compile=NoPattern, **patterns),
        "collections.abc": _collections_abc,  # the very module, without the package around it
        "functools": _make("functools", wraps=name_after),
        "threading": _make("threading", Lock=_thread.allocate_lock, Thread=PlainThread),
    }


class NoPattern:
    """A pattern of which only a place after white space is ever asked; between a frame's ends there is none."""

    def __init__(self, _pattern: str, _flags: int = 0) -> None:
        """Whatever it describes."""

    def match(self, _text: str, at: int = 0) -> "NoSpace":
        """Nothing is skipped."""
        return NoSpace(at)


class NoSpace:
    """A match of nothing."""

    def __init__(self, at: int) -> None:
        self._at = at

    def end(self) -> int:
        """Where it began."""
        return self._at


def capitalize_words(text: str, separator: str | None = None) -> str:
    """As `string.capwords`."""
    return (separator or " ").join(word.capitalize() for word in text.split(separator))


def name_after(wrapped: "Callable[..., object]") -> "Callable[[Callable[..., object]], Callable[..., object]]":
    """As `functools.wraps`, as far as people see it."""

    def rename(wrapper: "Callable[..., object]") -> "Callable[..., object]":
        wrapper.__name__, wrapper.__doc__ = wrapped.__name__, wrapped.__doc__
        return wrapper

    return rename


class PlainThread:
    """A thread that ends with the process, and that nobody waits for."""

    def __init__(self, *, target: "Callable[..., object]", args: tuple[object, ...], name: str, daemon: bool) -> None:
        assert daemon, f"the thread {name} would not end with the process"
        self._target, self._args = target, args

    def start(self) -> None:
        """Begin; what it fails with goes to the log."""
        _thread.start_new_thread(self._target, self._args)


def _make(name: str, **values: object) -> ModuleType:
    module = ModuleType(name)
    module.__dict__.update(values)
    return module
