"""Keeps the runtime shim and what it looks up as they should be; only loaded where somebody wants the shim.

Owns what the shim may be asked for: the specifications of this node whoever else defines their kinds, those of
containers that start with parts of GPUs, and the policy of the settings.
"""

from pathlib import Path
from typing import Final

from msgspec.structs import replace

from nodeagent.components.cdi.plan_shim import plan_qualified, plan_shim_table
from nodeagent.components.cdi.plan_specs import SpecWishes, plan_specs
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
    """What one pass has done."""

    program: str = ""
    """Where the shim is in place; empty where it is off."""
    written: tuple[str, ...] = ()
    """What was not as it should be, and is now."""


class ShimKeeper:
    """What the cdi component asks for at each of its passes."""

    def __init__(self, live: LiveSettings, host: ShimHost) -> None:
        self._live, self._host = live, host
        self._planned: tuple[object, ShimTable] | None = None
        self._parts: dict[str, Spec] = {}

    async def keep(self, inventory: Inventory, files: DriverFiles, hook: Path | None, cuda: str) -> ShimPass:
        """Have program and table in place, or no table where the shim is off.

        Raises:
            NodeagentError: one of them cannot be put there; what is there stays.
        """
        settings = self._live.now.shim
        program, directory = settings.program, settings.table_dir
        if not self._live.now.runtime.shim:
            return ShimPass(written=(str(directory),) if await self._give_up(settings, directory) else ())
        written = [str(program)] if await self._host.install(program, settings.nvidia_names) else []
        table = self._plan(inventory, files, hook, cuda, await self._host.read_marks())
        if await self._write(table):
            written.append(str(directory))
        return ShimPass(program=str(program), written=tuple(written))

    async def write_part(self, name: str, spec: Spec) -> None:
        """Have the table know what a container has that is about to be created.

        It is asked for at each creation, so what an agent that was killed has forgotten is told again by then.

        Raises:
            NodeagentError: the table cannot be written.
        """
        self._parts[name] = spec
        # Where there is no table yet it comes with the first pass.
        if self._planned is not None:
            await self._write(self._planned[1])

    def forget_part(self, name: str) -> None:
        """Leave a container that has ended out of the next table."""
        self._parts.pop(name, None)

    async def _write(self, table: ShimTable) -> bool:
        settings = self._live.now.shim
        if self._parts:
            devices = [device for spec in self._parts.values() for device in plan_qualified(spec)]
            # By mounts alone they are asked for: what an image says in its environment comes after those.
            policy = replace(table.policy, accept_mounts=True)
            table = replace(table, policy=policy, devices=(*table.devices, *devices))
        return await self._host.write(settings.table_dir, table, settings.on_missing)

    async def _give_up(self, settings: ShimSettings, directory: Path) -> bool:
        """The program stays, because containers are ended through what they were started through.

        What it becomes then must be the same, so where that is not what it finds by itself, that much is still said.
        """
        if settings.runtimes == ShimPolicy().runtimes:
            return await self._host.remove(directory)
        return await self._host.write(directory, ShimTable(policy=plan_policy(settings)), settings.on_missing)

    def _plan(
        self, inventory: Inventory, files: DriverFiles, hook: Path | None, cuda: str, marks: tuple[tuple[str, str], ...]
    ) -> ShimTable:
        """The table; made anew only when something it depends on has changed."""
        origin = (inventory, files, hook, cuda, marks, self._live.now.shim, self._live.now.cdi.device_groups)
        if self._planned is None or self._planned[0] != origin:
            # Every kind, and groups too: what others define, and what readers of files are too old for, is no matter.
            groups = self._live.now.cdi.device_groups != "never"
            wishes = SpecWishes(kinds=PUBLIC_KINDS, hook=hook, groups=groups, public_groups=groups)
            specs = plan_specs(inventory, files, wishes).specs
            policy = plan_policy(self._live.now.shim)
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
