"""Says whether an upgrade may close the GPUs of the node by its slots, and gives the slots back with the result.

Owns the moment of the question: an upgrade asks before its drain begins, and keeps its slots until it has ended, in the
phases after the drain whatever a person or a breaker says. Refuses to choose a slot: `rules/repair/slots` chooses.
"""

from collections.abc import Sequence

from nodeagent.components.repairs.holding_task import SlotHolding
from nodeagent.model.upgrades import DriverUpgrade, UpgradePhase
from nodeagent.rules.repair.slots import read_upgrade


class UpgradeSlots(SlotHolding):
    """The slots of the node's upgrades."""

    def may_close(self, upgrade: DriverUpgrade) -> bool:
        """Whether the GPUs are closed for an upgrade; whoever is past the drain finishes."""
        return self.has_slots or upgrade.phase is not UpgradePhase.DRAIN

    async def renew(self, upgrade: DriverUpgrade) -> None:
        """Keep the slots of an upgrade that has begun its drain."""
        if self.may_close(upgrade):
            await self.hold(read_upgrade(upgrade))

    async def ask(self, upgrade: DriverUpgrade, hold: str) -> str:
        """Have a slot in each domain before the end of the drain; what is lacking, or why nobody is asked for slots."""
        if upgrade.phase is not UpgradePhase.DRAIN or upgrade.is_failing:
            return ""
        if hold and not self.has_slots:
            return hold
        return "" if await self.hold(read_upgrade(upgrade)) else self.refusal

    async def settle_all(self, upgrades: Sequence[DriverUpgrade]) -> None:
        """Give back the slots of upgrades that have ended, and of those that have not asked."""
        mine = [one for one in upgrades if one.is_open and read_upgrade(one).name == self.turn]
        await self.settle(self.turn if mine else "", map(read_upgrade, upgrades))
