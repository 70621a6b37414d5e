"""Imports the four classes of kubernetes_asyncio that credentials need, without its model classes.

The package imports every model of the API when it is imported: 36 MB, of which the agent uses nothing. Its readers of
credentials are less than 2 MB, so it is entered by its inner modules, past its own `__init__` files.
Where a release has other inner modules, the plain import is used instead: more memory, the same behaviour.
"""

import importlib
import importlib.util
import sys
import threading
from types import ModuleType
from typing import Any

from msgspec import Struct

from nodeagent.core.log.lines import get_logger

_ROOT = "kubernetes_asyncio"
_HOLLOW = (f"{_ROOT}", f"{_ROOT}.client", f"{_ROOT}.config")
"""Packages whose `__init__` is not run; their modules are imported one by one."""

_loading = threading.Lock()
"""Each client loads in a thread of its own, and between two steps of one the packages are hollow to the other."""

_log = get_logger(component="kube")


class Library(Struct, frozen=True):
    """What is used of kubernetes_asyncio; untyped, as the package is where it matters."""

    Configuration: Any
    ConfigException: type[Exception]
    KubeConfigLoader: Any
    InClusterConfigLoader: Any


def load_library(*, slim: bool = True) -> Library:
    """The classes, imported once per process and only where the API is in use."""
    with _loading:
        if slim and _ROOT not in sys.modules:
            try:
                _hollow_out()
                return _collect()
            except Exception as error:
                # Whatever it was: what stays hollow would fail every later import of this process.
                _forget()
                if not isinstance(error, ImportError | AttributeError):
                    raise
                _log.warning("slim_import_failed", reason=str(error))
        return _collect()


def _hollow_out() -> None:
    spec = importlib.util.find_spec(_ROOT)
    if spec is None or not spec.submodule_search_locations:
        raise ImportError(f"{_ROOT} is not installed")
    home = spec.submodule_search_locations[0]
    for name in _HOLLOW:
        module = ModuleType(name)
        module.__path__ = [home + name.removeprefix(_ROOT).replace(".", "/")]
        sys.modules[name] = module
    client = sys.modules[f"{_ROOT}.client"]
    # What the readers of credentials take from the package they believe to be whole.
    vars(client)["Configuration"] = importlib.import_module(f"{_ROOT}.client.configuration").Configuration
    vars(client)["ApiClient"] = object


def _collect() -> Library:
    modules = {
        name: importlib.import_module(f"{_ROOT}.{name}")
        for name in (
            "client.configuration",
            "config.config_exception",
            "config.kube_config",
            "config.incluster_config",
        )
    }
    return Library(
        Configuration=modules["client.configuration"].Configuration,
        ConfigException=modules["config.config_exception"].ConfigException,
        KubeConfigLoader=modules["config.kube_config"].KubeConfigLoader,
        InClusterConfigLoader=modules["config.incluster_config"].InClusterConfigLoader,
    )


def _forget() -> None:
    for name in [name for name in sys.modules if name == _ROOT or name.startswith(f"{_ROOT}.")]:
        del sys.modules[name]
