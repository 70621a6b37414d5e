"""Loads protobuf without the half of it that is written in Python, until somebody wants that.

Its pool of descriptors imports the messages in pure Python, and with them their text format and pickling, although
messages are those of its C core: a third of what it takes to load protobuf before the first `Register`, and one MiB.
Refuses to leave anything out: what is asked of the module loads it, as the interpreter's own `LazyLoader` does; so an
installation of protobuf without its C core works, too.
"""

import sys
from importlib.util import LazyLoader, find_spec, module_from_spec
from typing import Final

PURE_PYTHON: Final = "google.protobuf.internal.python_message"


def postpone_pure_python() -> None:
    """For the rest of this process; to be called before the first message is imported, without effect after it."""
    if PURE_PYTHON in sys.modules:
        return
    spec = find_spec(PURE_PYTHON)
    if spec is None or spec.loader is None:
        return  # a release that has it elsewhere is loaded as it is
    spec.loader = LazyLoader(spec.loader)
    module = module_from_spec(spec)
    sys.modules[PURE_PYTHON] = module
    spec.loader.exec_module(module)
    package, _, name = PURE_PYTHON.rpartition(".")
    setattr(sys.modules[package], name, module)  # an import that finds it there does not touch it, and so not load it
