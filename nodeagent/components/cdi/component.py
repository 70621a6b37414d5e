"""Keeps the node's CDI specifications equal to its GPUs and driver.

Owns `CdiState` and the specification files, made anew when the driver, the inventory, the device nodes or the files
themselves change, and checked every half minute besides.
Refuses to touch the files without a working driver: a running upgrade shows no final state.
"""

from collections import deque
from collections.abc import Collection, Mapping, Sequence
from typing import TYPE_CHECKING, TypeAlias

import anyio
from anyio.abc import TaskStatus
from msgspec.structs import replace

from nodeagent.components.cdi.decide import (
    CODES,
    Layout,
    SpecChanges,
    SpecContested,
    decide_changes,
    decide_options,
    decide_problems,
    decide_public,
    plan_own_paths,
    render_state,
    renew_files,
)
from nodeagent.components.cdi.plan_claims import list_stale, plan_claim_spec
from nodeagent.components.cdi.plan_specs import (
    HOOK_PROGRAM,
    FractionUndescribed,
    SpecOptions,
    SpecPlan,
    plan_common_edits,
    plan_fraction,
    plan_specs,
    render_specs,
)
from nodeagent.components.cdi.registry import SpecReading, parse_spec
from nodeagent.config.live import LiveSettings
from nodeagent.config.sections.containers import CdiSettings
from nodeagent.core.channels.bus import Bus
from nodeagent.core.channels.envelope import Cause, Envelope
from nodeagent.core.channels.mailbox import Waker
from nodeagent.core.channels.news import News
from nodeagent.core.conditions import Conditions
from nodeagent.core.life.handle import Handle
from nodeagent.core.life.report import Degraded
from nodeagent.core.log.lines import get_logger
from nodeagent.edge.host.files.cdi_files import SpecFiles
from nodeagent.edge.host.files.host_program import HostProgram
from nodeagent.model.cdi import DriverFiles, SpecContent
from nodeagent.model.driver import DriverState
from nodeagent.model.errors import NodeagentError, SpecsUnavailable
from nodeagent.model.events import CdiSpecsWritten, ConfigurationReloaded
from nodeagent.model.gpu import Inventory
from nodeagent.model.ids import GpuUuid
from nodeagent.model.plugin import ContainerMount
from nodeagent.model.ports import ClaimedSpec, DriverFileSource
from nodeagent.model.runtime import CdiState, RuntimeState
from nodeagent.rules.cdi_names import name_claim_file, name_fraction_file
from nodeagent.rules.fractions.runtime import is_by_shim

if TYPE_CHECKING:
    from nodeagent.components.cdi.keep_shim import ShimUpdater

REVIEW_SECONDS = 30.0
"""How long a change that no watch notices, such as a new firmware file, may go unseen."""
RETRY_SECONDS = 2.0
"""Pause before a failed pass, or a pass without some device, is repeated."""
RETRIES_SOON, LATER_SECONDS = 15, 10.0
"""After so many repetitions a missing device is looked for less often: by then no repair is under way."""
CONTEST_SECONDS, CONTEST_REWRITES = 60.0, 5
"""Limit for rewrites over another writer's content: two writers who never agree must not race."""


Origin: TypeAlias = tuple[Inventory, DriverFiles, SpecOptions]
"""The inputs of the specifications."""
Planned: TypeAlias = tuple[Origin, dict[str, bytes], SpecPlan]


class Cdi:
    """The cdi component."""

    name = "cdi"

    def __init__(
        self,
        bus: Bus,
        conditions: Conditions,
        live: LiveSettings,
        driver_files: DriverFileSource,
        directories: SpecFiles,
        *,
        hook: HostProgram | None = None,
        shim: "ShimUpdater | None" = None,
        handle: "Handle[Cdi] | None" = None,
    ) -> None:
        """`hook` installs the hook program, and is missing without a host to install on.

        `shim` keeps the runtime shim, where one is wanted or was. `handle` leads to the component those who want
        specifications of containers or claims.
        """
        self._bus, self._conditions, self._live = bus, conditions, live
        self._driver_files, self._directories, self._hook = driver_files, directories, hook
        self._shim = shim
        self._handle = handle or Handle(SpecsUnavailable)
        self._attention = Waker()
        self._parsed: dict[SpecContent, SpecReading] = {}
        self._written: dict[str, bytes] = {}
        self._rewrites: deque[float] = deque()
        self._renewed_for = 0.0
        """The last change of a device node for which the files are new enough; once each, however clocks are set."""
        self._retries = 0
        self._planned: Planned | None = None
        self._news = News()
        self._reloaded: Envelope[ConfigurationReloaded] | None = None
        self._log = get_logger(component=self.name)

    async def run(self, *, task_status: TaskStatus[None] = anyio.TASK_STATUS_IGNORED) -> None:
        """Write, report, wait; started after the first pass with a working driver and an inventory."""
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(
                self._attention.follow,
                self._bus.watch_all(Inventory, DriverState, RuntimeState, client=self.name),
                name="cdi states",
            )
            tasks.start_soon(self._watch_settings, name="cdi settings")
            tasks.start_soon(self._watch_files, name="cdi files")
            while not await self._try_pass():
                await self._wait_for_more()
            with self._handle.filled(self):
                task_status.started()
                while True:
                    await self._wait_for_more()
                    await self._try_pass()

    async def write_fraction(
        self,
        names: tuple[str, ...],
        gpus: Sequence[GpuUuid],
        mounts: Sequence[ContainerMount],
        environment: Mapping[str, str],
    ) -> None:
        """Write the specification of a single container; the port's contract is in `model.ports`."""
        origin, _, plan = self._find_planned()
        spec = plan_fraction(names, gpus, (mounts, environment), origin, plan.common)
        specs = render_specs(SpecPlan(specs=(spec,)))
        (content,) = specs.values()
        await self._directories.write_spec(name_fraction_file(names[0]), content, durable=False)
        if self._shim is not None and is_by_shim(self._bus.read(RuntimeState)):
            await self._shim.write_fraction(names[0], spec)

    def _find_planned(self) -> Planned:
        """The last plan; raises `SpecsUnavailable` where the node had no GPUs until a moment ago."""
        if self._planned is None:
            raise SpecsUnavailable
        return self._planned

    async def remove_fraction(self, name: str) -> None:
        """Remove the specification of a single container; the port's contract is in `model.ports`."""
        if self._shim is not None:
            self._shim.forget_fraction(name)
        await self._directories.remove_spec(name_fraction_file(name))

    async def write_claim(self, uid: str, devices: Sequence[ClaimedSpec]) -> None:
        """Write the specification of a claim; the port's contract is in `model.ports`."""
        origin, _, plan = self._find_planned()
        try:
            spec = plan_claim_spec(devices, origin, plan.common)
        except FractionUndescribed:
            # A MIG device made for the claim has come since the files were planned.
            inventory = self._bus.read(Inventory)
            files = await self._read_driver_files()
            fresh = (inventory or origin[0], files, origin[2])
            spec = plan_claim_spec(devices, fresh, plan_common_edits(files, origin[2]))
        (content,) = render_specs(SpecPlan(specs=(spec,))).values()
        await self._directories.write_spec(name_claim_file(uid), content, durable=False)

    async def remove_claim(self, uid: str) -> None:
        """Remove the specification of a claim; the port's contract is in `model.ports`."""
        await self._directories.remove_spec(name_claim_file(uid))

    async def keep_claims(self, uids: Collection[str]) -> None:
        """Remove the specifications of all other claims; the port's contract is in `model.ports`."""
        for name in list_stale(await self._directories.list_passing(), uids):
            await self._directories.remove_spec(name)

    async def _wait_for_more(self) -> None:
        """Return after a change, or when the next poll is due."""
        pause = REVIEW_SECONDS
        if self._is_incomplete():
            pause = RETRY_SECONDS if self._retries < RETRIES_SOON else LATER_SECONDS
        with anyio.move_on_after(pause) as waiting:
            await self._attention.wait()
        self._retries = self._retries + 1 if waiting.cancelled_caught and self._is_incomplete() else 0

    async def _try_pass(self) -> bool:
        """Make a pass; False without a driver and GPUs to describe, or after a failure."""
        try:
            is_done = await self._pass()
        except NodeagentError as error:
            self._note_trouble(str(error))
            return False
        self._note_trouble("")
        return is_done

    async def _watch_settings(self) -> None:
        with self._bus.listen(ConfigurationReloaded, client=self.name) as reloads:
            async for self._reloaded in reloads:
                self._attention.wake()

    async def _watch_files(self) -> None:
        while True:
            try:
                await self._directories.wait_change()
            except (
                NodeagentError
            ) as error:  # pragma: no cover - tested; Python 3.11 traces no frame that is resumed by an exception
                self._log.debug("cdi_watch_interrupted", reason=str(error))
            self._attention.wake()
            # Two writers who never agree cost at most one pass a second.
            await anyio.sleep(1.0)

    async def _pass(self) -> bool:
        """Bring the files in line; False without a driver and GPUs to describe."""
        driver, inventory = self._bus.latest(DriverState), self._bus.latest(Inventory)
        if driver is None or not driver.value.ready or inventory is None:
            # Where there is no GPU and need not be any there is nothing to name, and no component is to wait for it.
            return driver is not None and driver.value.is_done_without
        files = await self._read_driver_files()
        settings = self._live.now.cdi
        layout = await self._choose_layout(settings)
        contents = await self._directories.read_specs()
        readings = self._parse(contents)
        own_paths = plan_own_paths(self._directories.locate, files.vendor)
        kinds = decide_public(readings, own_paths, wanted=settings.public_kind, vendor=files.vendor)
        requests = decide_options(kinds, layout, self._live.now, self._bus.read(RuntimeState))
        wanted, plan = self._plan(inventory.value, files, requests)
        changes = decide_changes(wanted, contents, own_paths, files.vendor)
        self._refuse_contest(changes, contents)
        if files.nodes_changed_seconds != self._renewed_for:
            renewed = renew_files(wanted, contents, own_paths, files.nodes_changed_seconds)
            changes = replace(changes, write={**renewed, **changes.write})
        cause = self._news.take(driver, inventory, self._reloaded)
        if changes.write or changes.remove:
            cause = await self._apply(changes, inventory.value.generation, cause)
            readings = self._parse(await self._directories.read_specs())
        self._renewed_for = files.nodes_changed_seconds
        names = await self._keep_names(settings, layout)
        shim, trouble = await self._keep_shim(inventory.value, files, layout, driver.value)
        state = render_state(inventory.value.generation, readings, own_paths, plan.left_out, layout, shim=shim)
        envelope = self._bus.publish_state(state, source=self.name, cause=cause)
        problems = decide_problems(readings, plan, files, driver.value.driver_version)
        for code in CODES:
            self._conditions.replace(code, problems[code], cause=envelope)
        self._conditions.show("shim-not-kept", trouble, cause=envelope)
        self._conditions.show("program-names-missing", names, cause=envelope)
        return True

    def _plan(
        self, inventory: Inventory, files: DriverFiles, requests: SpecOptions
    ) -> tuple[dict[str, bytes], SpecPlan]:
        """The files' contents, and their plan; made anew only after a change of an input."""
        origin = (inventory, files, requests)
        if self._planned is None or self._planned[0] != origin:
            plan = plan_specs(inventory, files, requests)
            # The rendered bytes are kept; their specifications are not.
            self._planned = (origin, render_specs(plan), replace(plan, specs=()))
        return self._planned[1], self._planned[2]

    async def _read_driver_files(self) -> DriverFiles:
        """The driver's files, and the configured device nodes that exist."""
        extra_nodes = [str(device.host) for device in self._live.now.containers.extra_devices]
        return await self._driver_files.read_driver_files(extra_nodes)

    def _parse(self, contents: Sequence[SpecContent]) -> list[SpecReading]:
        """The runtimes' view of the files; each content is parsed once."""
        self._parsed = {each: self._parsed.get(each) or parse_spec(each) for each in contents}
        return [self._parsed[each] for each in contents]

    async def _choose_layout(self, settings: CdiSettings) -> Layout:
        """Decide whether containers are created with a hook; the hook is installed, and with `auto` has run once."""
        if settings.hooks == "none" or self._hook is None:
            return Layout(reason="`cdi.hooks` is none" if self._hook is not None else "the GPUs are simulated")
        path = settings.hook_dir / HOOK_PROGRAM
        try:
            if await self._hook.install(path):
                self._log.info("cdi_hook_installed", path=str(path))
            if settings.hooks == "auto":
                await self._hook.check(path)
        except NodeagentError as error:
            if settings.hooks == "ldcache":
                raise
            return Layout(reason=str(error))
        return Layout(hook=path)

    async def _keep_names(self, settings: CdiSettings, layout: Layout) -> str:
        """What keeps programs of ours from having their further names; empty where all is as wanted."""
        directory = settings.further_names_dir
        if directory is None or self._hook is None:
            return ""
        try:
            if await self._hook.name(directory, layout.hook):
                self._log.info("programs_named", directory=str(directory))
        except NodeagentError as error:
            return str(error)
        return ""

    async def _keep_shim(
        self, inventory: Inventory, files: DriverFiles, layout: Layout, driver: DriverState
    ) -> tuple[str, str]:
        """The runtime shim's program, empty without a shim, and the shim's trouble; the files do not depend on it."""
        if self._shim is None:
            return "", ""
        cuda = ".".join(map(str, driver.cuda_version or ()))
        try:
            done = await self._shim.keep(inventory, files, layout.hook, cuda)
        except NodeagentError as error:
            return "", str(error)
        if done.written:
            self._log.info("shim_kept", written=done.written)
        return done.program, ""

    def _refuse_contest(self, changes: SpecChanges, contents: Sequence[SpecContent]) -> None:
        """Write the same content over another writer's a few times a minute and no more.

        Raises:
            SpecContested: The limit is reached.
        """
        there = {each.path for each in contents}
        taken = [
            path
            for name, content in changes.write.items()
            if (path := self._directories.locate(name)) in there and self._written.get(name) == content
        ]
        if not taken:
            return
        now = anyio.current_time()
        while self._rewrites and self._rewrites[0] <= now - CONTEST_SECONDS:
            self._rewrites.popleft()
        if len(self._rewrites) >= CONTEST_REWRITES:
            raise SpecContested(taken[0])
        self._rewrites.append(now)

    async def _apply(self, changes: SpecChanges, generation: int, cause: Cause) -> Envelope[CdiSpecsWritten]:
        for name in changes.remove:
            await self._directories.remove_spec(name)
        for name, content in changes.write.items():
            await self._directories.write_spec(name, content)
            self._written[name] = content
        paths = tuple(self._directories.locate(name) for name in changes.write)
        removed = tuple(self._directories.locate(name) for name in changes.remove)
        self._log.info("cdi_specs_written", written=paths, removed=removed, generation=generation)
        fact = CdiSpecsWritten(written=paths, removed=removed, generation=generation)
        return self._bus.publish_fact(fact, source=self.name, cause=cause)

    def _is_incomplete(self) -> bool:
        state = self._bus.read(CdiState)
        return self._bus.latest(Degraded, self.name) is not None or bool(state is not None and state.left_out)

    def _note_trouble(self, trouble: str) -> None:
        self._conditions.show("cdi-not-written", trouble)
        if trouble:
            self._bus.publish_state(Degraded(trouble), source=self.name, key=self.name)
        else:
            self._bus.retract_state(Degraded, self.name)
