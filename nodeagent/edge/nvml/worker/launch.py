"""The first lines of the worker process: a slim import, then the worker.

pynvml, json and the worker import six modules for little use: `ctypes.util` for a function on Windows alone, `string`,
`functools` and `collections.abc` for a name each, `re` for a fallback of C code, `threading` for a lock and a daemon
thread. The six modules bring subprocess, tempfile, random, enum, collections and more: 3 MB and half of the start-up
time (measured on Python 3.11, x86-64). So stand-ins take the modules' places during the import. A release of
Python that breaks the stand-ins imports the modules whole; tests hold both ways to the same result.
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
    """Become the worker that cuts GPUs, with the same arguments."""
    load_slim()
    from nodeagent.edge.nvml.worker.partition import serve  # noqa: PLC0415 -- as above

    serve(*arguments)


def load_slim() -> None:
    """Import the worker and all dependencies with stand-ins; leave no module behind after a failure."""
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
    """The stand-ins by module name; each has the used names alone, so that any other use fails at once."""
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
    """A pattern for white space that finds none, as a frame has no white space between tokens."""

    def __init__(self, _pattern: str, _flags: int = 0) -> None:
        """Any description is accepted."""

    def match(self, _text: str, at: int = 0) -> "NoSpace":
        """No white space is skipped."""
        return NoSpace(at)


class NoSpace:
    """An empty match."""

    def __init__(self, at: int) -> None:
        self._at = at

    def end(self) -> int:
        """The start of the match."""
        return self._at


def capitalize_words(text: str, separator: str | None = None) -> str:
    """As `string.capwords`."""
    return (separator or " ").join(word.capitalize() for word in text.split(separator))


def name_after(wrapped: "Callable[..., object]") -> "Callable[[Callable[..., object]], Callable[..., object]]":
    """The names of `functools.wraps`."""

    def rename(wrapper: "Callable[..., object]") -> "Callable[..., object]":
        wrapper.__name__, wrapper.__doc__ = wrapped.__name__, wrapped.__doc__
        return wrapper

    return rename


class PlainThread:
    """A daemon thread, ended with the process."""

    def __init__(self, *, target: "Callable[..., object]", args: tuple[object, ...], name: str, daemon: bool) -> None:
        assert daemon, f"the thread {name} would not end with the process"
        self._target, self._args = target, args

    def start(self) -> None:
        """Start the thread; a failure goes to the log."""
        _thread.start_new_thread(self._target, self._args)


def _make(name: str, **values: object) -> ModuleType:
    module = ModuleType(name)
    module.__dict__.update(values)
    return module
