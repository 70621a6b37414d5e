"""Carries out the acts of an upgrade, one at a time and beside the component: modules out, new driver in, modules in.

Owns the order within an act: the driver is let go before the modules leave, and holders of GPUs are looked for once
more in the moment before. An exit code is no result: the loaded module is looked at afterwards.
Refuses to force a module out, and to decide the next step: `rules/upgrade_steps` decides.
"""

from collections.abc import Callable, Collection, Iterable, Sequence
from typing import Final, NamedTuple, Protocol

from msgspec.structs import replace

from nodeagent.components.upgrades.leaving_task import Rehearsal
from nodeagent.components.upgrades.put_aside_task import Keep, PuttingAside, UpgradeCluster
from nodeagent.config.sections.driver_upgrades import DriverUpgradeSettings
from nodeagent.core.clock import Clock
from nodeagent.core.log.lines import get_logger
from nodeagent.edge.host.driver.module_loader import HostServices, RunOnHost
from nodeagent.model.errors import DriverError, NodeagentError
from nodeagent.model.ids import GpuUuid
from nodeagent.model.nvidia import KERNEL_MODULE, UNIFIED_MEMORY_MODULE
from nodeagent.model.ports import DriverModules, DriverProbe, GpuProver, GpuSource
from nodeagent.model.proof import ProofStage
from nodeagent.model.repairs import SessionGpu
from nodeagent.model.upgrades import DriverUpgrade
from nodeagent.rules.driver_modules import plan_reload
from nodeagent.rules.proof.judge import find_failure
from nodeagent.rules.proof.stages import plan_stage
from nodeagent.rules.upgrade_steps import CONTAINER, Act, Answer

_BASE: Final = (KERNEL_MODULE, UNIFIED_MEMORY_MODULE)
SOON_SECONDS: Final = 1.0
"""The pause after the first try of an act; doubled after each further one."""
ACT_AGAIN_SECONDS: Final = 10.0
"""Between two tries of the same act."""


class NodeDrain(Protocol):
    """Has everybody leave the GPUs of the node."""

    has_pods: bool
    """Whether a pod that may be asked to leave was left in the last round, or the GPUs were open."""

    async def bring(
        self, session: DriverUpgrade, domain: Iterable[SessionGpu], dead: frozenset[GpuUuid]
    ) -> tuple[str, ...]:
        """Take the next step; returns the holders that are left."""
        ...

    async def compare(self, domain: Iterable[SessionGpu]) -> tuple[str, ...]:
        """The holders, read anew without a request to any."""
        ...

    async def wait_daemons(self, gpus: Collection[GpuUuid]) -> tuple[str, ...]:
        """Wait for MPS daemons to quit; returns the daemons that did not."""
        ...

    def end(self) -> None:
        """Forget the drain, which has ended."""
        ...


class NodeSlots(Protocol):
    """The slots of the node's upgrades, without which the GPUs stay open."""

    @property
    def is_waiting(self) -> bool:
        """Whether slots were asked for, and are not taken."""
        ...

    def may_close(self, upgrade: DriverUpgrade) -> bool:
        """Whether the GPUs are closed for an upgrade now."""
        ...

    async def renew(self, upgrade: DriverUpgrade) -> None:
        """Keep the slots of an upgrade that has begun its drain."""
        ...

    async def ask(self, upgrade: DriverUpgrade, hold: str) -> str:
        """Take slots, unless a reason holds the upgrade; what is lacking."""
        ...

    async def settle_all(self, upgrades: Sequence[DriverUpgrade]) -> None:
        """Give back what no open upgrade needs, with the result."""
        ...

    def find_wait(self) -> float | None:
        """Seconds until something is due; `None` where nothing is."""
        ...


class UpgradePorts(NamedTuple):
    """The driver, its modules and programs, slots and drain before an upgrade, and the prover after it."""

    probe: DriverProbe
    gpus: GpuSource
    modules: DriverModules
    drain: NodeDrain
    slots: NodeSlots
    run_on_host: RunOnHost
    services: HostServices
    cluster: UpgradeCluster | None = None
    """`None` without an API server."""
    rehearsal: Rehearsal | None = None
    """`None` without an API server."""
    prover: GpuProver | None = None
    """`None` where GPUs compute nothing, or without the CUDA library."""


def name_release(upgrade: DriverUpgrade) -> str:
    """The reason for which the driver is let go, by which a restarted component knows the release."""
    return f"upgrade {upgrade.number} of the driver to {upgrade.wanted}"


class UpgradeActs:
    """The act of an upgrade, if there is one."""

    def __init__(self, ports: UpgradePorts, clock: Clock, aside: PuttingAside, keep: Keep) -> None:
        self._ports, self._clock, self._aside, self._keep = ports, clock, aside, keep
        self.is_busy = False
        self.has_released = False
        """Whether the driver is let go for an upgrade, and not by a person."""
        self._answer: Answer | None = None
        self._pause_seconds = self._ended_at = 0.0
        self._log = get_logger(component="upgrades")

    @property
    def answer(self) -> Answer | None:
        """The end of the last act of the present phase."""
        return self._answer

    def forget(self) -> None:
        """Begin another phase."""
        self._answer = None

    def is_due(self, act: Act) -> bool:
        """Whether an act may begin now; the same act is not repeated at once."""
        is_other = self._answer is None or self._answer.act is not act
        return not self.is_busy and (is_other or self.find_wait() <= 0)

    def find_wait(self) -> float:
        """Seconds until the last act may be repeated: soon at first, as the kernel takes a moment to end a process."""
        return self._ended_at + self._pause_seconds - self._clock.monotonic()

    async def carry_out(
        self, act: Act, upgrade: DriverUpgrade, settings: DriverUpgradeSettings, note_end: Callable[[], None]
    ) -> None:
        """Do an act to its end."""
        try:
            problem = await self._do(act, upgrade, settings)
        except NodeagentError as error:
            problem = str(error)
        self._log.info("driver_upgrade_act_ended", upgrade=upgrade.number, act=act, problem=problem)
        is_again = self._answer is not None and self._answer.act is act
        self._pause_seconds = min(2 * self._pause_seconds, ACT_AGAIN_SECONDS) if is_again else SOON_SECONDS
        self._answer, self._ended_at, self.is_busy = Answer(act=act, problem=problem), self._clock.monotonic(), False
        note_end()

    async def _do(self, act: Act, upgrade: DriverUpgrade, settings: DriverUpgradeSettings) -> str:
        """The problem, if any."""
        match act:
            case Act.UNLOAD:
                return await self._unload(upgrade, settings)
            case Act.INSTALL:
                return await self._install(upgrade, settings)
            case _:
                return await self._load(upgrade)

    async def _unload(self, upgrade: DriverUpgrade, settings: DriverUpgradeSettings) -> str:
        await self._ports.gpus.release(name_release(upgrade))
        self.has_released = True
        daemons = await self._ports.drain.wait_daemons([gpu.uuid for gpu in upgrade.gpus])
        held = await self._ports.drain.compare(upgrade.gpus)
        if daemons or held:
            return f"came meanwhile, or did not quit: {', '.join(dict.fromkeys((*daemons, *held)))}"
        if settings.installed_by == CONTAINER:
            return await self._send_pods_away(upgrade)
        plan = plan_reload(await self._ports.modules.read_loaded())
        if plan.blocker:
            return plan.blocker
        await self._keep(replace(upgrade.put_aside, modules=upgrade.put_aside.modules or plan.load))
        answer = await self._ports.modules.unload(plan.unload)
        return "" if answer.code == 0 else answer.describe()

    async def _send_pods_away(self, upgrade: DriverUpgrade) -> str:
        """Send away the old driver's pods, by name: the new pod is left alone, after a restart of the agent too."""
        pods = upgrade.put_aside.driver_pods or await self._aside.find_driver_pods()
        if not pods:
            return "no pod with the driver was found on this node: is the driver the host's own?"
        await self._keep(replace(upgrade.put_aside, driver_pods=pods))
        return await self._aside.send_away(pods)

    async def _install(self, upgrade: DriverUpgrade, settings: DriverUpgradeSettings) -> str:
        if settings.installed_by == "command":
            answer = await self._ports.run_on_host(settings.upgrade_command, settings.upgrade_seconds)
            if answer.code != 0:
                return f"driver.upgrade_command: {answer.describe()}"
        return await self._load(upgrade)

    async def _load(self, upgrade: DriverUpgrade) -> str:
        """Load the modules for CUDA, then the other earlier modules; a module missing from the new driver is told."""
        problem = await self._ports.modules.load(_BASE)
        others = [one for one in upgrade.put_aside.modules if one.replace("_", "-") not in _BASE]
        if others and not problem and (lacking := await self._ports.modules.load(others)):
            self._log.warning("kernel_modules_not_loaded", modules=others, error=lacking)
        return problem

    async def take_back(self) -> str:
        """Take back the driver after a release for an upgrade; the problem, if any."""
        if self.has_released:
            try:
                await self._ports.gpus.resume()
            except DriverError as error:
                return f"the driver was not taken back: {error}"
            self.has_released = False
        return ""

    async def prove(self, gpu: SessionGpu) -> str:
        """A short computation on a GPU; the finding against the GPU, if any."""
        plan = plan_stage(ProofStage.QUICK)
        if self._ports.prover is None or plan is None:
            return ""
        return find_failure(await self._ports.prover.prove(gpu.uuid, plan), plan, gpu.index)
