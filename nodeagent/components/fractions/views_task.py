"""The views of everything given in fractions: the driver's GPUs, and the devices of each divisible class.

Owns the time of each view. The driver's GPUs may come later than the devices, or never.
"""

from collections.abc import Awaitable, Callable, Iterable, Mapping

from msgspec.structs import replace

from nodeagent.components.fractions.class_views import list_whole_holders, plan_class_view
from nodeagent.components.fractions.decide import (
    FractionViews,
    Publisher,
    list_daemon_faults,
    plan_view,
)
from nodeagent.components.fractions.decision_log_task import DecisionLog
from nodeagent.config.live import LiveSettings
from nodeagent.core.channels.bus import Bus
from nodeagent.core.log.lines import get_logger
from nodeagent.model.allocation import AllocationTable
from nodeagent.model.devices import DeviceClassState, DeviceTable
from nodeagent.model.driver import DriverState
from nodeagent.model.fractions import FractionOffers
from nodeagent.model.gpu import Inventory
from nodeagent.model.health import HealthReport
from nodeagent.model.ids import GpuUuid, ResourceName
from nodeagent.model.journal import FractionTable
from nodeagent.model.mps import MpsState
from nodeagent.model.offering import Offering
from nodeagent.rules.fractions.by_class import render_by_class

Wait = Callable[[], Awaitable[None]]


class Views:
    """The views of now; a helper of the component `fractions`."""

    def __init__(
        self, bus: Bus, live: LiveSettings, decisions: DecisionLog, *, wait_for_gpus: Wait | None = None
    ) -> None:
        """`wait_for_gpus` returns once the driver's GPUs can be offered; `None` where they can be now."""
        self._bus, self._live, self._decisions = bus, live, decisions
        self._wait_for_gpus = wait_for_gpus
        self._has_gpus = wait_for_gpus is None
        self.now = FractionViews()
        self._origins: dict[str, tuple[object, ...]] = {}
        self._publishers: dict[str, Publisher] = {}
        self._log = get_logger(component="fractions")

    async def wait_for_gpus(self, wake: Callable[[], None]) -> None:
        """Call `wake` once the driver's GPUs can be offered, where the devices of classes did not wait for them."""
        if self._wait_for_gpus is not None:
            await self._wait_for_gpus()
            self._has_gpus = True
            wake()

    def refresh(self, foreign: Mapping[GpuUuid, int]) -> bool:
        """Look at everything once more; False while nothing is known.

        A view stays the same object while its sources are unchanged, as when a pod comes.
        """
        table = self._bus.read(DeviceTable)
        classes = [each for each in table.classes if each.divisible] if table is not None else []
        known = self._find_gpus()
        if known is None and table is None:
            return False
        lack, lack_of_classes = self._decisions.report_runtime(has_classes=bool(classes))
        names = [each.resource for each in classes]
        for gone in self.now.by_kind.keys() - {*names, *([""] if known is not None else [])}:
            del self.now.by_kind[gone], self._origins[gone]
        if known is not None:
            self._look_at_gpus(*known, lack, foreign)
        for each in classes:
            self._look_at_class(each, lack_of_classes)
        return True

    def _find_gpus(self) -> tuple[Inventory, Offering] | None:
        """The driver's GPUs and their modes; `None` where they are unknown, or not given in fractions at all."""
        inventory, offering = self._bus.read(Inventory), self._bus.read(Offering)
        if inventory is None or offering is None or not (self._live.now.fractions.enabled and self._has_gpus):
            return None
        return inventory, offering

    def _look_at_gpus(
        self, inventory: Inventory, offering: Offering, lack: str, foreign: Mapping[GpuUuid, int]
    ) -> None:
        health, driver = self._bus.read(HealthReport), self._bus.read(DriverState)
        settings, has_mps = self._live.now.fractions, self._live.now.uses_mps
        obstacle = lack or (driver.obstacle if driver is not None else "")
        daemons = list_daemon_faults(inventory, self._bus.read(MpsState))
        origin = (inventory, offering, health, obstacle, settings, foreign, daemons, has_mps)
        if origin != self._origins.get(""):
            blocked = {gpu.uuid: obstacle or daemons.get(gpu.uuid, "") for gpu in inventory.gpus}
            self.now.by_kind[""] = plan_view(inventory, offering, health, settings, blocked, foreign, has_mps=has_mps)
            self._origins[""] = origin

    def _look_at_class(self, state: DeviceClassState, lack: str) -> None:
        settings, whole = self._live.now.fractions, list_whole_holders(self._bus.read(AllocationTable))
        holders = {str(each.id): whole[each.id] for each in state.devices if each.id in whole}
        origin = (state, settings, lack, holders)
        if origin != self._origins.get(state.resource):
            self.now.by_kind[state.resource] = plan_class_view(state, settings, lack, holders)
            self._origins[state.resource] = origin

    def plan_offers(self, resources: Iterable[ResourceName], table: FractionTable) -> FractionOffers:
        """The offers of all views, with the annotations for schedulers where the settings ask for them."""
        unfit = {gpu: reason for view in self.now.by_kind.values() for gpu, reason in view.unfit.items()}
        offers = FractionOffers(resources=tuple(sorted(resources)), unfit=unfit)
        if not self._live.now.fractions.publish:
            return offers
        gpus, bound = dict[str, str](), dict[str, str]()
        for name, view in self.now.by_kind.items():
            if name not in self._publishers:
                self._publishers[name] = Publisher(
                    lambda pods: self._log.warning("bound_parts_not_published", pods=pods)
                )
            publisher = self._publishers[name]
            gpus[name], bound[name] = publisher.render_gpus(view), publisher.render_bound(view, table)
        return replace(
            offers,
            published=gpus.pop("", ""),
            bound=bound.pop("", ""),
            published_classes=render_by_class(gpus),
            bound_classes=render_by_class(bound),
        )
