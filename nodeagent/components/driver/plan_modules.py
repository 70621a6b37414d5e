"""The kernel modules to load on this host, each tried once for each state of the kernel's tables.

A module that was seen loaded is loaded no more: somebody took it away, perhaps to replace it.
"""

from collections.abc import Collection

from nodeagent.model.driver import DriverEvidence
from nodeagent.model.nvidia import KERNEL_MODULE, UNIFIED_MEMORY_MODULE
from nodeagent.model.values import Value


class LoadPlan(Value, frozen=True):
    """Modules to load."""

    modules: tuple[str, ...]
    tables: tuple[str, int] = ("", 0)
    """Running kernel and time of its table: with others, what failed before is tried again."""


def list_loaded_modules(evidence: DriverEvidence) -> frozenset[str]:
    """The loaded ones of the modules that the agent would load."""
    loaded = {KERNEL_MODULE: evidence.module_loaded, UNIFIED_MEMORY_MODULE: evidence.unified_memory_loaded}
    return frozenset(name for name, is_loaded in loaded.items() if is_loaded)


def plan_modules(evidence: DriverEvidence, seen: Collection[str]) -> LoadPlan | None:
    """The modules to load; `None` without any. `seen` are the modules loaded at some time in the agent's life."""
    if evidence.released or evidence.stuck or evidence.platform_unsupported or not evidence.pci_functions:
        return None
    if not evidence.module_loaded:
        return _plan_both(evidence, seen)
    if evidence.unified_memory_loaded or UNIFIED_MEMORY_MODULE in seen:
        return None
    return LoadPlan(modules=(UNIFIED_MEMORY_MODULE,))


def describe_attempt(problem: str) -> str:
    """The reason why an attempt left the modules unloaded."""
    return problem or "modprobe loaded nothing: look for `blacklist` and `install` lines in the host's /etc/modprobe.d"


def _plan_both(evidence: DriverEvidence, seen: Collection[str]) -> LoadPlan | None:
    search = evidence.module_search
    is_held = evidence.nouveau_loaded or any(function.bound_driver for function in evidence.pci_functions)
    if search is None or not search.file or is_held or KERNEL_MODULE in seen:
        return None
    return LoadPlan(modules=(KERNEL_MODULE, UNIFIED_MEMORY_MODULE), tables=(search.kernel, search.table_time))
