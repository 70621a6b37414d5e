"""The removal of the driver's kernel modules: their order, and who keeps a module from leaving.

Refuses to force a module out: a module that somebody uses stays, and so do all.
"""

from collections.abc import Iterable

from nodeagent.model.driver import LoadedModule
from nodeagent.model.nvidia import RELOADED_MODULES
from nodeagent.model.values import Value


class ReloadPlan(Value, frozen=True):
    """The modules to unload, in order, or why none may be unloaded."""

    unload: tuple[str, ...] = ()
    """Empty where no module of the driver is loaded."""
    blocker: str = ""
    """The obstacle to the removal of a module; empty without one."""

    @property
    def load(self) -> tuple[str, ...]:
        """The same modules in the order of their loading."""
        return self.unload[::-1]


def plan_reload(loaded: Iterable[LoadedModule]) -> ReloadPlan:
    """The plan for the loaded ones of `RELOADED_MODULES`."""
    modules = sorted(loaded, key=lambda module: RELOADED_MODULES.index(module.name))
    unload = tuple(module.name for module in modules)
    blockers = (_find_blocker(module, unload[:place]) for place, module in enumerate(modules))
    blocker = next(filter(None, blockers), "")
    return ReloadPlan(blocker=blocker) if blocker else ReloadPlan(unload=unload)


def _find_blocker(module: LoadedModule, gone: tuple[str, ...]) -> str:
    """The obstacle to the removal of a module once other modules are gone."""
    if module.references is None:
        return f"the module {module.name} is just being loaded or unloaded"
    staying = [holder for holder in module.holders if holder not in gone]
    if staying:
        return f"the module {module.name} is needed by {', '.join(staying)}"
    uses = module.references - len(module.holders)
    # Modules that hold a module are counted among its references.
    return f"the module {module.name} is in use by processes or the kernel, {uses} times" if uses > 0 else ""
