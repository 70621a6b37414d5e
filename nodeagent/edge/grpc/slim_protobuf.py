"""Loads protobuf without the pure Python half, until an attribute of the half is used.

protobuf's descriptor pool imports the messages in pure Python, with text format and pickling, although messages come
from the C core: a third of the load time of protobuf before the first `Register`, and one MiB.
Refuses to leave anything out: an access to the module loads the module, as the interpreter's own `LazyLoader` does; so
an installation of protobuf without the C core works, too.
"""

import sys
from importlib.util import LazyLoader, find_spec, module_from_spec
from typing import Final

PURE_PYTHON: Final = "google.protobuf.internal.python_message"


def postpone_pure_python() -> None:
    """Postpone for the rest of the process; call before the first message is imported, without effect after."""
    if PURE_PYTHON in sys.modules:
        return
    spec = find_spec(PURE_PYTHON)
    if spec is None or spec.loader is None:
        return  # a release with the module elsewhere is loaded unchanged
    spec.loader = LazyLoader(spec.loader)
    module = module_from_spec(spec)
    sys.modules[PURE_PYTHON] = module
    spec.loader.exec_module(module)
    package, _, name = PURE_PYTHON.rpartition(".")
    setattr(sys.modules[package], name, module)  # an import that finds the attribute does not load the module
