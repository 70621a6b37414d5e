"""Reloads the host's driver: services stop, the kernel's modules leave and come back, the services start again.

Owns the order, and that whatever was taken away comes back, however the reload ends. Refuses force: a module that
somebody uses stays, and whoever uses the module is named.
"""

from collections.abc import Callable, Sequence

from nodeagent.core.log.lines import get_logger
from nodeagent.edge.host.driver.module_loader import HostServices
from nodeagent.model.errors import NodeagentError
from nodeagent.model.ports import DriverModules
from nodeagent.model.repairs import Outcome, ReloadedDriver
from nodeagent.rules.driver_modules import plan_reload
from nodeagent.rules.repair.outcomes import Reading, add_remarks, read_removal

_WHY = "for a reload of the driver"


class DriverReload:
    """The means to reload a driver of the host."""

    def __init__(
        self,
        modules: DriverModules,
        services: HostServices,
        is_possible: Callable[[], bool],
    ) -> None:
        """`is_possible` tells whether the driver is the host's now."""
        self._modules, self._services = modules, services
        self.is_possible = is_possible
        self._log = get_logger(component="repairs")

    async def survey(self) -> ReloadedDriver:
        """The modules and services that a reload would take away now."""
        active = [name for name in self._services.read_names() if await self._services.is_running(name)]
        try:
            plan = plan_reload(await self._modules.read_loaded())
        except NodeagentError:
            # The reload itself reads them again, and has the reason for the session.
            return ReloadedDriver(services=tuple(active))
        return ReloadedDriver(services=tuple(active), modules=plan.unload)

    async def carry_out(self, driver: ReloadedDriver) -> Reading:
        """Reload the driver."""
        remarks = [problem for name in driver.services if (problem := await self._services.change(name, "stop", _WHY))]
        reading = await self._exchange()
        remarks += await self._start(driver)
        return add_remarks(reading, remarks)

    async def restore(self, driver: ReloadedDriver) -> None:
        """Bring back the modules and services that a killed agent took away."""
        problem = await self._modules.load(driver.modules[::-1]) if driver.modules else ""
        remarks = [*([problem] if problem else []), *await self._start(driver)]
        self._log.info("repair_driver_restored", driver=driver, remarks=remarks)

    async def _exchange(self) -> Reading:
        try:
            plan = plan_reload(await self._modules.read_loaded())
        except NodeagentError as error:
            return Reading(outcome=Outcome.STOPPED, detail=str(error))
        if plan.blocker:
            return Reading(outcome=Outcome.REFUSED, detail=plan.blocker)
        if not plan.unload:
            return Reading(outcome=Outcome.STOPPED, detail="the kernel shows no module of the driver")
        reading = read_removal(await self._modules.unload(plan.unload))
        if reading.outcome is Outcome.UNKNOWN:
            # Whoever waits in the kernel for the removal would keep modprobe waiting too.
            return reading
        problem = await self._modules.load(plan.load) or await self._find_missing(plan.unload)
        if problem:
            return Reading(outcome=Outcome.FAILED, detail=f"the driver did not come back: {problem}")
        return reading

    async def _find_missing(self, modules: Sequence[str]) -> str:
        """Why the modules are not known to be loaded again; empty when all are."""
        try:
            loaded = {module.name for module in await self._modules.read_loaded()}
        except NodeagentError as error:
            return str(error)
        missing = [name for name in modules if name not in loaded]
        return f"modprobe left out {', '.join(missing)}" if missing else ""

    async def _start(self, driver: ReloadedDriver) -> list[str]:
        names = driver.services[::-1]
        return [problem for name in names if (problem := await self._services.change(name, "start", _WHY))]
