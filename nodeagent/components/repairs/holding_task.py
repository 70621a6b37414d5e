"""Says whether the work whose turn it is on this node has its slots in the cluster, and gives slots back.

Owns the pace of the questions: work without slots asks again after a minute or so, work with slots looks once a minute
whether the slots are still its own and nobody has suspended a domain. Waits for no answer longer than the deadline of a
question.
"""

from collections.abc import Iterable, Sequence
from random import Random
from typing import Final

import anyio
from msgspec.structs import replace

from nodeagent.components.repairs.slots_task import RepairSlots
from nodeagent.config.live import LiveSettings
from nodeagent.core.channels.bus import Bus
from nodeagent.core.clock import Clock
from nodeagent.core.log.lines import get_logger
from nodeagent.model.cluster import ClusterNode
from nodeagent.model.errors import NodeagentError
from nodeagent.model.repairs import SlotUse
from nodeagent.model.slots import Domain, SlotWork
from nodeagent.model.upgrades import DriverUpgrade, UpgradePhase
from nodeagent.model.values import Value
from nodeagent.rules.repair.slots import (
    HELD_SECONDS,
    RETRY_SECONDS,
    find_result,
    find_retry_seconds,
    list_domains,
    read_upgrade,
)

ASK_SECONDS: Final = 20.0
"""For a question about all slots of the node's domains."""
NO_API: Final = "there is no API server to ask for a slot of `repairs.slots`"


class _Turn(Value, frozen=True):
    """Work and what is known of its slots."""

    name: str
    held_seconds: float
    due_seconds: float
    refusal: str = ""
    domains: tuple[Domain, ...] = ()
    """Where the work has slots, as far as the agent knows."""
    is_taken: bool = False
    """Whether an answer has said that the slots are taken, and none has said otherwise since."""
    since_seconds: float = 0.0
    """When the slots were taken, by the wall clock; tries from then on count for the breakers."""


class _Debt(Value, frozen=True):
    """Slots that may have to be given back."""

    domains: tuple[Domain, ...]
    since_seconds: float
    due_seconds: float


class SlotHolding:
    """The slots of the one work that may act; without domains in the settings all work may."""

    def __init__(self, slots: RepairSlots | None, bus: Bus, live: LiveSettings, clock: Clock) -> None:
        """`slots` is `None` without an API server."""
        self._slots, self._bus, self._live, self._clock = slots, bus, live, clock
        self._turn: _Turn | None = None
        self._debts: dict[str, _Debt] = {}
        self._is_started = False
        self._refused = 0
        self._random = Random()  # noqa: S311 - spreads load, keeps no secret
        self._log = get_logger(component="repairs")

    @property
    def is_bounded(self) -> bool:
        """Whether slots are needed at all."""
        return bool(self._live.now.repairs.slots.domains)

    @property
    def has_slots(self) -> bool:
        """Whether the work whose turn it is has slots, as far as the agent knows."""
        return self._turn is not None and bool(self._turn.domains)

    @property
    def has_needed_slots(self) -> bool:
        """Whether the work whose turn it is has taken its slots, or needs none."""
        return not self.is_bounded or (self._turn is not None and self._turn.is_taken)

    @property
    def turn(self) -> str:
        """The name of the work that has asked for slots; empty without one."""
        return self._turn.name if self._turn is not None else ""

    @property
    def refusal(self) -> str:
        """Why the work whose turn it is has no slots; empty without a reason."""
        return self._turn.refusal if self._turn is not None else ""

    def describe(self) -> SlotUse | None:
        """The use of slots; `None` where none are needed."""
        if not self.is_bounded:
            return None
        allowed = self._slots.allowed if self._slots is not None and self._turn is not None else {}
        return SlotUse(
            allowed={str(domain): count for domain, count in allowed.items()},
            refused=self._refused,
            is_waiting=bool(self.refusal),
        )

    def find_wait(self) -> float | None:
        """Seconds until a question is due; `None` without a question."""
        dues = [debt.due_seconds for debt in self._debts.values()]
        if self._turn is not None:
            dues.append(self._turn.due_seconds)
        return max(0.0, min(dues) - self._clock.monotonic()) if dues else None

    async def hold(self, work: SlotWork) -> bool:
        """Whether the work has its slots now; asked anew when due."""
        if not self.is_bounded:
            return True
        now, turn = self._clock.monotonic(), self._turn
        if turn is None or turn.name != work.name:
            since = self._clock.wall() if work.began_seconds is None else work.began_seconds
            turn = _Turn(name=work.name, held_seconds=work.held_seconds, due_seconds=now, since_seconds=since)
        if now >= turn.due_seconds or turn.held_seconds != work.held_seconds:
            turn = await self._ask(work, turn)
        self._turn = turn
        return not turn.refusal

    async def _ask(self, work: SlotWork, turn: _Turn) -> _Turn:
        domains, refusal = (turn.domains, "") if turn.domains else self._list_domains()
        has_answer = True
        if self._slots is None:
            refusal = NO_API
        elif work.began_seconds is not None or not refusal:
            has_answer, refusal = await self._ask_for(self._slots, work, domains)
        now = self._clock.monotonic()
        if not refusal:
            if not turn.domains:
                self._log.info("repair_slots_taken", work=work.name, domains=[str(one) for one in domains])
            due = now + RETRY_SECONDS
            return replace(
                turn, held_seconds=work.held_seconds, due_seconds=due, refusal="", domains=domains, is_taken=True
            )
        self._refused += 1
        age = self._clock.wall() - work.opened_seconds
        due = now + find_retry_seconds(is_grave=work.is_grave, age_seconds=age, draw=self._random.random())
        # Without an answer nobody knows whether the slots were taken: they are given back once there is one.
        kept, is_taken = ((), False) if has_answer else (domains, turn.is_taken)
        return replace(
            turn, held_seconds=work.held_seconds, due_seconds=due, refusal=refusal, domains=kept, is_taken=is_taken
        )

    async def _ask_for(self, slots: RepairSlots, work: SlotWork, domains: tuple[Domain, ...]) -> tuple[bool, str]:
        """Whether there was an answer, and what is lacking."""
        try:
            with anyio.fail_after(ASK_SECONDS):
                if work.began_seconds is not None:
                    await slots.renew(domains, work.name, work.held_seconds)
                    return True, ""
                return True, await slots.take(domains, work.name, work.held_seconds)
        except TimeoutError:
            return False, f"the API server did not answer about slots within {ASK_SECONDS:g} s"
        except NodeagentError as error:
            return False, str(error)

    async def settle(self, turn: str, known: Iterable[SlotWork]) -> None:
        """End the turn of all other work and give its slots back, with the result; `known` is all work of the node."""
        if not self.is_bounded or self._slots is None:
            return
        now, works = self._clock.monotonic(), {one.name: one for one in known}
        if not self._is_started:
            self._owe_for_agent_before(works.values(), now)
        if self._turn is not None and turn != self._turn.name:
            if self._turn.domains:
                self._debts[self._turn.name] = _Debt(
                    domains=self._turn.domains, since_seconds=self._turn.since_seconds, due_seconds=now
                )
            self._turn = None
        self._debts.pop(turn, None)
        for name in [one for one, debt in self._debts.items() if debt.due_seconds <= now]:
            await self._give_back(self._slots, name, works.get(name))

    def _owe_for_agent_before(self, known: Iterable[SlotWork], now: float) -> None:
        """An agent before may have left slots to any work that is open or was closed lately."""
        domains, _ = self._list_domains()
        if self._bus.read(ClusterNode) is None:
            return
        oldest = self._clock.wall() - max(HELD_SECONDS.values())
        late = [one.name for one in known if one.closed_seconds is None or one.closed_seconds >= oldest]
        self._debts |= {name: _Debt(domains=domains, since_seconds=0.0, due_seconds=now) for name in late}
        self._is_started = True

    def _list_domains(self) -> tuple[tuple[Domain, ...], str]:
        return list_domains(self._live.now.repairs.slots.domains, self._bus.read(ClusterNode))

    async def _give_back(self, slots: RepairSlots, name: str, work: SlotWork | None) -> None:
        debt = self._debts[name]
        is_proven = None if work is None else find_result(work, debt.since_seconds)
        if await slots.give_back(debt.domains, name, is_proven=is_proven):
            del self._debts[name]
            self._log.info("repair_slots_given_back", work=name, proven=is_proven)
        else:
            self._debts[name] = replace(debt, due_seconds=self._clock.monotonic() + RETRY_SECONDS)


class UpgradeSlots(SlotHolding):
    """The slots of the node's upgrades: asked for before a drain begins, and kept until the upgrade has ended."""

    @property
    def is_waiting(self) -> bool:
        """Whether slots were asked for, and are not taken."""
        return bool(self.refusal) and not self.has_needed_slots

    def may_close(self, upgrade: DriverUpgrade) -> bool:
        """Whether the GPUs are closed for an upgrade; whoever is past the drain finishes."""
        return self.has_needed_slots or upgrade.phase is not UpgradePhase.DRAIN

    async def renew(self, upgrade: DriverUpgrade) -> None:
        """Keep the slots of an upgrade that has begun its drain."""
        if self.may_close(upgrade):
            await self.hold(read_upgrade(upgrade))

    async def ask(self, upgrade: DriverUpgrade, hold: str) -> str:
        """Have a slot in each domain before the end of the drain; what is lacking, or why nobody is asked for slots."""
        if upgrade.phase is not UpgradePhase.DRAIN or upgrade.is_failing:
            return ""
        if hold and not self.has_needed_slots:
            return hold
        return "" if await self.hold(read_upgrade(upgrade)) else self.refusal

    async def settle_all(self, upgrades: Sequence[DriverUpgrade]) -> None:
        """Give back the slots of upgrades that have ended, and of those that have not asked."""
        mine = [one for one in upgrades if one.is_open and read_upgrade(one).name == self.turn]
        await self.settle(self.turn if mine else "", map(read_upgrade, upgrades))
