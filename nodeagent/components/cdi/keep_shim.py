"""Keeps the runtime shim and its table up to date; only loaded where the configuration wants the shim.

Owns the devices on offer in the shim: the specifications of the node whoever else defines the kinds, the
specifications of starting containers with fractions, and the policy of the settings.
"""

from pathlib import Path
from typing import Final

from msgspec.structs import replace

from nodeagent.components.cdi.plan_shim import plan_qualified, plan_shim_table
from nodeagent.components.cdi.plan_specs import SpecOptions, plan_specs
from nodeagent.components.cdi.spec import Spec
from nodeagent.config.live import LiveSettings
from nodeagent.config.sections.shim import ShimSettings
from nodeagent.model.cdi import DriverFiles
from nodeagent.model.gpu import Inventory
from nodeagent.model.ports import ShimHost
from nodeagent.model.shim import Capability, ShimPolicy, ShimTable
from nodeagent.model.values import Value
from nodeagent.rules.cdi_names import PUBLIC_KINDS

_NOTHING: Final = Capability(0)


class ShimPass(Value, frozen=True):
    """The result of a pass."""

    program: str = ""
    """The path of the shim; empty where the shim is off."""
    written: tuple[str, ...] = ()
    """The outdated files that the pass has renewed."""


class ShimUpdater:
    """The cdi component's access to the shim, used at each pass."""

    def __init__(self, live: LiveSettings, host: ShimHost) -> None:
        self._live, self._host = live, host
        self._planned: tuple[object, ShimTable] | None = None
        self._parts: dict[str, Spec] = {}

    async def keep(self, inventory: Inventory, files: DriverFiles, hook: Path | None, cuda: str) -> ShimPass:
        """Put program and table in place, or remove the table where the shim is off.

        Raises:
            NodeagentError: Program or table cannot be written; the old files stay.
        """
        settings = self._live.now.shim
        program, directory = settings.program, settings.table_dir
        if not self._live.now.runtime.shim:
            return ShimPass(written=(str(directory),) if await self._give_up(settings, directory) else ())
        written = [str(program)] if await self._host.install(program, settings.further_names) else []
        table = self._plan(inventory, files, hook, cuda, await self._host.read_marks())
        if await self._write(table):
            written.append(str(directory))
        return ShimPass(program=str(program), written=tuple(written))

    async def write_fraction(self, name: str, spec: Spec) -> None:
        """Add the devices of a container that is about to be created to the table.

        Called at each creation, so entries lost with a killed agent are added again by then.

        Raises:
            NodeagentError: The table cannot be written.
        """
        self._parts[name] = spec
        # A missing table comes with the first pass.
        if self._planned is not None:
            await self._write(self._planned[1])

    def forget_fraction(self, name: str) -> None:
        """Leave an ended container out of the next table."""
        self._parts.pop(name, None)

    async def _write(self, table: ShimTable) -> bool:
        settings = self._live.now.shim
        if self._parts:
            devices = [device for spec in self._parts.values() for device in plan_qualified(spec)]
            # Fractions are asked for by mounts alone: an image's environment comes after mounts.
            policy = replace(table.policy, accept_mounts=True)
            table = replace(table, policy=policy, devices=(*table.devices, *devices))
        return await self._host.write(settings.table_dir, table, settings.on_missing)

    async def _give_up(self, settings: ShimSettings, directory: Path) -> bool:
        """Remove the table; the program stays, because containers are ended through the program that started them.

        The runtime behind the program must stay the same, so runtimes other than its default are still written.
        """
        if settings.runtimes == ShimPolicy().runtimes:
            return await self._host.remove(directory)
        return await self._host.write(directory, ShimTable(policy=plan_policy(settings)), settings.on_missing)

    def _plan(
        self, inventory: Inventory, files: DriverFiles, hook: Path | None, cuda: str, marks: tuple[tuple[str, str], ...]
    ) -> ShimTable:
        """The table; made anew only when an input has changed."""
        now = self._live.now
        origin = (inventory, files, hook, cuda, marks, now.shim, now.cdi.device_groups, now.containers)
        if self._planned is None or self._planned[0] != origin:
            # Every kind, and groups too: other definers, and old readers of files, do not matter to the shim.
            groups = now.cdi.device_groups != "never"
            requests = SpecOptions(
                kinds=PUBLIC_KINDS, hook=hook, groups=groups, public_groups=groups, containers=now.containers
            )
            specs = plan_specs(inventory, files, requests).specs
            policy = plan_policy(now.shim)
            self._planned = (origin, plan_shim_table(inventory, files, specs, policy, cuda=cuda, fresh=marks))
        return self._planned[1]


def plan_policy(settings: ShimSettings) -> ShimPolicy:
    """The settings, as the shim reads them."""
    supported = _NOTHING
    for name in settings.capabilities:
        supported |= Capability[name.upper()]
    return ShimPolicy(
        mode=settings.mode,
        accept_environment=settings.accept_environment,
        accept_mounts=settings.accept_mounts,
        disable_require=settings.disable_require,
        ignore_imex=settings.ignore_imex,
        default_kind=settings.default_kind,
        supported=supported,
        debug=str(settings.debug) if settings.debug is not None else "",
        runtimes=settings.runtimes,
        swarm=settings.swarm_resources,
        prefixes=settings.annotation_prefixes,
        namespaces=settings.management_namespaces,
    )
