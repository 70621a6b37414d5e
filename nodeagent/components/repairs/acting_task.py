"""Carries out one act at a time, beside the component: a reset, a reload of the driver, or the request for a reboot.

Owns the order of an act: the agent lets go of the driver, the MPS daemons of the GPUs quit, persistence mode goes off,
the reset, persistence mode comes back, the driver is taken back, whereupon the daemons start again, settings are put
back, the prover computes. A stop of the agent waits for a reset that
has begun. Refuses to decide what an act means for a session: `rules/repair` decides.
"""

from collections.abc import Awaitable, Callable, Sequence
from typing import NamedTuple

import anyio

from nodeagent.components.repairs.drain_task import DomainDrain
from nodeagent.components.repairs.reload_task import DriverReload
from nodeagent.core.clock import Clock
from nodeagent.core.log.lines import get_logger
from nodeagent.model.errors import DriverError
from nodeagent.model.gpu import Gpu
from nodeagent.model.ids import GpuUuid
from nodeagent.model.ports import DriverTool, GpuProver, GpuSource
from nodeagent.model.proof import ProofStage
from nodeagent.model.repairs import Attempt, FaultSession, KeptSettings, Outcome, ReloadedDriver, Rung, ToolAnswer
from nodeagent.rules.proof.judge import find_failure
from nodeagent.rules.proof.stages import plan_stage
from nodeagent.rules.repair.outcomes import Reading, add_remarks, find_changed, read_answer

RequestReboot = Callable[[str], Awaitable[ToolAnswer]]
"""Requests a reboot of the node, for a reason."""

NoteEnd = Callable[[FaultSession, Reading], None]
"""Called after the end of an act."""


WithdrawReboot = Callable[[], Awaitable[ToolAnswer]]
"""Takes the request for a reboot back."""


class ActPorts(NamedTuple):
    """The driver, the driver's tool, the reboot request, the drain before an act and the prover after it."""

    gpus: GpuSource
    tool: DriverTool
    request_reboot: RequestReboot
    drain: DomainDrain
    prover: GpuProver | None = None
    """`None` where GPUs compute nothing, or without the CUDA library."""
    withdraw_reboot: WithdrawReboot | None = None
    """`None` without an API server, where no request outlives a boot."""
    reload: DriverReload | None = None
    """`None` where the driver has no kernel modules of the host."""


class Acting:
    """The act of a session, if there is one."""

    def __init__(self, ports: ActPorts, clock: Clock, note_end: NoteEnd) -> None:
        self._ports, self._clock, self._note_end = ports, clock, note_end
        self.session = 0
        """The number of the session whose act is under way or waits for its proof; 0 for none."""
        self.reading: Reading | None = None
        """The result of the act; `None` before the end of the act."""
        self.ended_at = 0.0
        self.is_reset = False
        """Whether the act reset GPUs: the verdicts then have a poll at once, before the rhythm's next."""
        self.is_restoring = False
        self.put_back = frozenset[GpuUuid]()
        """The GPUs that have their settings back, and whose settings may be forgotten."""
        self.with_driver = 0
        """The number of the session whose act has the driver now; 0 for none."""
        self._log = get_logger(component="repairs")

    def begin(self, session: FaultSession, rung: Rung) -> None:
        """Be taken by a session, which has the driver from now on where its rung resets."""
        self.session, self.with_driver = session.number, session.number if rung.is_reset else 0

    def clear(self) -> None:
        """Be free for the next act."""
        self.session, self.reading = 0, None

    async def carry_out(self, session: FaultSession, timeout_seconds: float) -> None:
        """Do what the open attempt of a session says."""
        attempt = session.under_way
        assert attempt is not None
        self.is_reset = attempt.rung.is_reset
        if attempt.rung is Rung.REBOOT:
            reading = await self._reboot(session)
        elif attempt.rung is Rung.DRAIN:
            reading = Reading(outcome=None)
        else:
            reading = await self._reset(session.number, attempt, timeout_seconds)
        self._log.info(
            "repair_act_ended", session=session.number, rung=attempt.rung, outcome=reading.outcome, said=reading.detail
        )
        self.reading, self.ended_at, self.with_driver = reading, self._clock.monotonic(), 0
        self._note_end(session, reading)

    async def _reboot(self, session: FaultSession) -> Reading:
        answer = await self._ports.request_reboot(f"session {session.number} of nodeagent: {session.cause}")
        if answer.code == 0:
            return Reading(outcome=None)
        return Reading(outcome=Outcome.STOPPED, detail=f"the reboot was not requested: {answer.describe()}")

    async def _reset(self, number: int, attempt: Attempt, timeout_seconds: float) -> Reading:
        with anyio.CancelScope(shield=True):
            try:
                await self._ports.gpus.release(f"session {number} resets GPUs")
            except DriverError as error:
                self.put_back |= {one.gpu for one in attempt.kept}
                return Reading(outcome=Outcome.STOPPED, detail=f"the driver was not let go: {error}")
            reading, remarks = await self._reset_released(attempt, timeout_seconds)
            remarks += await self._take_back()
        remarks += await self._put_back(attempt.kept)
        if reading.outcome is None:
            remarks = [reading.detail, *remarks]
            reading = await self._prove(attempt.kept)
        return add_remarks(reading, remarks)

    async def _reset_released(self, attempt: Attempt, timeout_seconds: float) -> tuple[Reading, list[str]]:
        left = await self._ports.drain.wait_daemons([one.gpu for one in attempt.kept])
        refused = Reading(outcome=Outcome.IN_USE, detail=f"{', '.join(left)} did not quit")
        return (refused, []) if left else await self._reset_unused(attempt, timeout_seconds)

    async def _reset_unused(self, attempt: Attempt, timeout_seconds: float) -> tuple[Reading, list[str]]:
        persistent = [one for one in attempt.kept if one.persistence_mode]
        remarks = await self._set_persistence(persistent, is_on=False)
        if self._ports.reload is not None and attempt.driver is not None:
            reading = await self._ports.reload.carry_out(attempt.driver)
        else:
            addresses = [one.address for one in attempt.kept]
            is_bus = attempt.rung is Rung.BUS_RESET
            answer = await self._ports.tool.reset(addresses, is_bus=is_bus, timeout_seconds=timeout_seconds)
            reading = read_answer(answer, attempt.rung)
        remarks += await self._set_persistence(persistent, is_on=True)
        return reading, remarks

    async def _take_back(self) -> list[str]:
        try:
            await self._ports.gpus.resume()
        except DriverError as error:
            return [f"the driver was not taken back: {error}"]
        return []

    async def read_settings(self, gpus: Sequence[Gpu]) -> list[Gpu]:
        """The GPUs with the settings of this moment, or the last known settings where the driver does not answer.

        The last list may be from between a reset and the return of the settings, whose loss would be for good.
        """
        if not gpus:
            return []
        try:
            readout = await self._ports.gpus.read_inventory()
        except DriverError:
            return list(gpus)
        now = {gpu.uuid: gpu for gpu in readout.gpus if not gpu.lost}
        return [now.get(gpu.uuid, gpu) for gpu in gpus]

    async def survey(self, rung: Rung) -> ReloadedDriver | None:
        """The modules and services that the act of a rung takes away."""
        reload = self._ports.reload if rung is Rung.RELOAD_DRIVER else None
        return await reload.survey() if reload is not None else None

    async def restore(self, kept: Sequence[KeptSettings]) -> None:
        """Put back settings for an act that did not come to it."""
        try:
            remarks = await self._put_back(kept)
        finally:
            self.is_restoring = False
        self._log.info("repair_settings_restored", gpus=[one.gpu for one in kept], remarks=remarks)

    async def _put_back(self, kept: Sequence[KeptSettings]) -> list[str]:
        """Set again what a reset took back; the remarks about what could not be set."""
        try:
            gpus = {gpu.uuid: gpu for gpu in (await self._ports.gpus.read_inventory()).gpus}
        except DriverError as error:
            return [f"settings were not put back: {error}"]
        here = [(one, gpu) for one in kept if (gpu := gpus.get(one.gpu)) is not None and not gpu.lost]
        remarks = [remark for one, gpu in here for remark in await self._put_back_one(one, gpu)]
        self.put_back |= {one.gpu for one, _ in here}
        return remarks

    async def _put_back_one(self, kept: KeptSettings, gpu: Gpu) -> list[str]:
        changed, tool = find_changed(kept, gpu), self._ports.tool
        remarks = list(changed.remarks)
        if changed.persistence_mode is not None:
            remarks += await self._set_persistence([kept], is_on=changed.persistence_mode)
        if changed.power_limit_milliwatts is not None:
            answer = await tool.set_power_limit(kept.address, changed.power_limit_milliwatts)
            remarks += _remark(f"the power limit of GPU {kept.index} was not put back", answer)
        if changed.compute_mode is not None:
            answer = await tool.set_compute_mode(kept.address, changed.compute_mode)
            remarks += _remark(f"the compute mode of GPU {kept.index} was not put back", answer)
        if changed.application_clocks_mhz is not None:
            answer = await tool.set_application_clocks(kept.address, *changed.application_clocks_mhz)
            remarks += _remark(f"the application clocks of GPU {kept.index} were not put back", answer)
        return remarks

    async def _set_persistence(self, gpus: Sequence[KeptSettings], *, is_on: bool) -> list[str]:
        remarks: list[str] = []
        for one in gpus:
            answer = await self._ports.tool.set_persistence(one.address, is_on=is_on)
            remarks += _remark(f"persistence mode of GPU {one.index} was not set {'on' if is_on else 'off'}", answer)
        return remarks

    async def _prove(self, kept: Sequence[KeptSettings]) -> Reading:
        """The result of a short computation; a GPU that cannot compute now is left to the polls."""
        plan = plan_stage(ProofStage.QUICK)
        if self._ports.prover is None or plan is None:
            return Reading(outcome=None)
        for one in kept:
            if one.mig_enabled:
                continue
            readings = await self._ports.prover.prove(one.gpu, plan)
            if failure := find_failure(readings, plan, one.index):
                return Reading(outcome=Outcome.FAILED, detail=failure)
        return Reading(outcome=None)


def _remark(what: str, answer: ToolAnswer) -> list[str]:
    return [] if answer.code == 0 else [f"{what}: {answer.describe()}"]
