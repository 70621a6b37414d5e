"""Gives up the driver's handles for a person's work on the driver, and takes the driver back."""

import contextlib
import math
from datetime import UTC, datetime, timedelta

import anyio

from nodeagent.config.live import LiveSettings
from nodeagent.core.channels.bus import Bus
from nodeagent.core.life.orders import OrderHandlers
from nodeagent.core.log.lines import get_logger
from nodeagent.model.errors import ControlRefused, DriverError
from nodeagent.model.orders import RELEASE, RESUME, ReleaseCommand
from nodeagent.model.ports import GpuSource
from nodeagent.model.repairs import RepairState
from nodeagent.model.upgrades import UpgradePhase, UpgradeState


class DriverRelease:
    """Carries out the orders `release` and `resume`."""

    def __init__(self, bus: Bus, live: LiveSettings, orders: OrderHandlers, gpus: GpuSource) -> None:
        self._bus, self._live, self._gpus = bus, live, gpus
        self._resume_at: float | None = None
        self._release_changed = anyio.Event()
        self._log = get_logger(component="control")
        orders.add(RELEASE, self.release)
        orders.add(RESUME, lambda _: self.resume())

    async def release(self, command: ReleaseCommand) -> str:
        """Give up every GPU handle, for so long at most."""
        self._refuse_during_act()
        lasts = command.seconds if command.seconds is not None else self._live.now.driver.release_seconds
        until = datetime.now(tz=UTC) + timedelta(seconds=lasts)
        try:
            await self._gpus.release(f"{command.reason}, until {until:%Y-%m-%d %H:%M:%S} UTC at the latest")
        except DriverError as error:
            raise ControlRefused(str(error)) from error
        self._resume_at = anyio.current_time() + lasts
        self._release_changed.set()
        self._log.info("driver_released", reason=command.reason, seconds=lasts)
        return f"all GPU handles are given up; `nodeagent resume`, or {lasts:g} s from now, takes the driver back"

    async def resume(self) -> str:
        """Take the driver back."""
        self._refuse_during_act()
        try:
            await self._gpus.resume()
        except DriverError as error:
            raise ControlRefused(str(error)) from error
        self._resume_at = None
        self._release_changed.set()
        self._log.info("driver_resumed")
        return "the driver is taken back"

    def _refuse_during_act(self) -> None:
        """Leave the driver to a reset or an upgrade that is under way, whoever asks."""
        repairs = self._bus.read(RepairState)
        if repairs is not None and repairs.with_driver:
            number = repairs.with_driver
            raise ControlRefused(
                f"session {number} of the repairs has the driver until its reset has ended:"
                f" see `nodeagent repairs explain {number}`"
            )
        upgrades = self._bus.read(UpgradeState)
        upgrade = upgrades.under_way if upgrades is not None else None
        if upgrade is not None and upgrade.phase in {UpgradePhase.UNLOAD, UpgradePhase.INSTALL}:
            raise ControlRefused(
                f"upgrade {upgrade.number} has the driver until the new one is in: see `nodeagent driver status`"
            )

    async def run(self) -> None:
        """End a release forgotten by its author; runs until cancelled."""
        while True:
            self._release_changed = anyio.Event()
            with anyio.CancelScope(deadline=math.inf if self._resume_at is None else self._resume_at):
                await self._release_changed.wait()
            if self._resume_at is not None and anyio.current_time() >= self._resume_at:
                self._resume_at = None
                with contextlib.suppress(ControlRefused):  # the driver's condition says why, and a person can resume
                    await self.resume()
