"""Says whether the session whose turn it is on this node has its slots in the cluster, and gives slots back.

Owns the pace of the questions: a session without slots asks again after a minute or so, a session with slots looks once
a minute whether the slots are still its own and nobody has suspended a domain. Waits for no answer longer than the
deadline of a question.
"""

from collections.abc import Mapping
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
from nodeagent.model.repairs import FaultSession, Rung, SlotUse
from nodeagent.model.slots import Domain
from nodeagent.model.values import Value
from nodeagent.rules.repair.slots import HELD_SECONDS, RETRY_SECONDS, find_result, find_retry_seconds, list_domains

ASK_SECONDS: Final = 20.0
"""For a question about all slots of the node's domains."""
NO_API: Final = "there is no API server to ask for a slot of `repairs.slots`"


class _Turn(Value, frozen=True):
    """A session and what is known of its slots."""

    session: int
    rung: Rung
    due_seconds: float
    refusal: str = ""
    domains: tuple[Domain, ...] = ()
    """Where the session has slots, as far as the agent knows."""
    since_seconds: float = 0.0
    """When the slots were taken, by the wall clock; attempts from then on count for the breakers."""


class _Debt(Value, frozen=True):
    """Slots that may have to be given back."""

    domains: tuple[Domain, ...]
    since_seconds: float
    due_seconds: float


class SlotHolding:
    """The slots of the one session that may act; without domains in the settings each session may."""

    def __init__(self, slots: RepairSlots | None, bus: Bus, live: LiveSettings, clock: Clock) -> None:
        """`slots` is `None` without an API server."""
        self._slots, self._bus, self._live, self._clock = slots, bus, live, clock
        self._turn: _Turn | None = None
        self._debts: dict[int, _Debt] = {}
        self._is_started = False
        self._refused = 0
        self._random = Random()  # noqa: S311 - spreads load, keeps no secret
        self._log = get_logger(component="repairs")

    @property
    def is_bounded(self) -> bool:
        """Whether a repair needs slots at all."""
        return bool(self._live.now.repairs.slots.domains)

    @property
    def has_slots(self) -> bool:
        """Whether the session whose turn it is has slots, as far as the agent knows."""
        return self._turn is not None and bool(self._turn.domains)

    @property
    def refusals(self) -> Mapping[int, str]:
        """The reasons why a session has no slots, by the session's number."""
        return {self._turn.session: self._turn.refusal} if self._turn is not None and self._turn.refusal else {}

    def describe(self) -> SlotUse | None:
        """The use of slots; `None` where a repair needs none."""
        if not self.is_bounded:
            return None
        allowed = self._slots.allowed if self._slots is not None and self._turn is not None else {}
        return SlotUse(
            allowed={str(domain): count for domain, count in allowed.items()},
            refused=self._refused,
            is_waiting=bool(self.refusals),
        )

    def find_wait(self) -> float | None:
        """Seconds until a question is due; `None` without a question."""
        dues = [debt.due_seconds for debt in self._debts.values()]
        if self._turn is not None:
            dues.append(self._turn.due_seconds)
        return max(0.0, min(dues) - self._clock.monotonic()) if dues else None

    async def hold(self, session: FaultSession) -> bool:
        """Whether the session has its slots now; asked anew when due."""
        if not self.is_bounded:
            return True
        now, turn = self._clock.monotonic(), self._turn
        if turn is None or turn.session != session.number:
            since = self._clock.wall() if session.under_way is None else session.under_way.began_seconds
            turn = _Turn(session=session.number, rung=session.rung, due_seconds=now, since_seconds=since)
        if now >= turn.due_seconds or turn.rung is not session.rung:
            turn = await self._ask(session, turn)
        self._turn = turn
        return not turn.refusal

    async def _ask(self, session: FaultSession, turn: _Turn) -> _Turn:
        domains, refusal = (turn.domains, "") if turn.domains else self._list_domains()
        has_answer = True
        if self._slots is None:
            refusal = NO_API
        elif session.under_way is not None or not refusal:
            has_answer, refusal = await self._ask_for(self._slots, session, domains)
        now = self._clock.monotonic()
        if not refusal:
            if not turn.domains:
                self._log.info("repair_slots_taken", session=session.number, domains=[str(one) for one in domains])
            due = now + RETRY_SECONDS
            return replace(turn, rung=session.rung, due_seconds=due, refusal="", domains=domains)
        self._refused += 1
        age = self._clock.wall() - session.opened_seconds
        due = now + find_retry_seconds(session.rung, age, self._random.random())
        # Without an answer nobody knows whether the slots were taken: they are given back once there is one.
        kept = () if has_answer else domains
        return replace(turn, rung=session.rung, due_seconds=due, refusal=refusal, domains=kept)

    async def _ask_for(
        self, slots: RepairSlots, session: FaultSession, domains: tuple[Domain, ...]
    ) -> tuple[bool, str]:
        """Whether there was an answer, and what is lacking."""
        try:
            with anyio.fail_after(ASK_SECONDS):
                if session.under_way is not None:
                    await slots.renew(domains, session.number, session.rung)
                    return True, ""
                return True, await slots.take(domains, session.number, session.rung)
        except TimeoutError:
            return False, f"the API server did not answer about slots within {ASK_SECONDS:g} s"
        except NodeagentError as error:
            return False, str(error)

    async def settle(self, turn: FaultSession | None, sessions: Mapping[int, FaultSession]) -> None:
        """End the turn of every other session and give its slots back, with what came of the repair."""
        if not self.is_bounded or self._slots is None:
            return
        now = self._clock.monotonic()
        if not self._is_started:
            self._owe_for_agent_before(sessions, now)
        if self._turn is not None and (turn is None or turn.number != self._turn.session):
            if self._turn.domains:
                self._debts[self._turn.session] = _Debt(
                    domains=self._turn.domains, since_seconds=self._turn.since_seconds, due_seconds=now
                )
            self._turn = None
        if turn is not None:
            self._debts.pop(turn.number, None)
        for number in [one for one, debt in self._debts.items() if debt.due_seconds <= now]:
            await self._give_back(self._slots, number, sessions.get(number))

    def _owe_for_agent_before(self, sessions: Mapping[int, FaultSession], now: float) -> None:
        """An agent before may have left slots to any session that is open or was closed lately."""
        domains, _ = self._list_domains()
        if self._bus.read(ClusterNode) is None:
            return
        oldest = self._clock.wall() - max(HELD_SECONDS.values())
        late = [one.number for one in sessions.values() if one.is_open or (one.closed_seconds or 0.0) >= oldest]
        self._debts |= {number: _Debt(domains=domains, since_seconds=0.0, due_seconds=now) for number in late}
        self._is_started = True

    def _list_domains(self) -> tuple[tuple[Domain, ...], str]:
        return list_domains(self._live.now.repairs.slots.domains, self._bus.read(ClusterNode))

    async def _give_back(self, slots: RepairSlots, number: int, session: FaultSession | None) -> None:
        debt = self._debts[number]
        is_proven = None if session is None else find_result(session, debt.since_seconds)
        if await slots.give_back(debt.domains, number, is_proven=is_proven):
            del self._debts[number]
            self._log.info("repair_slots_given_back", session=number, proven=is_proven)
        else:
            self._debts[number] = replace(debt, due_seconds=self._clock.monotonic() + RETRY_SECONDS)
