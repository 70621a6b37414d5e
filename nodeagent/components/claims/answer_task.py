"""Answers to the kubelet for the claims of one call: by a deadline, and each claim for itself."""

from collections.abc import Awaitable, Callable, Coroutine, Iterable
from typing import Any, Final, TypeAlias, TypeVar

import anyio

from nodeagent.core.channels.bus import Bus
from nodeagent.core.conditions import Conditions
from nodeagent.core.log.lines import get_logger
from nodeagent.model.claims import ClaimReference
from nodeagent.model.errors import NodeagentError
from nodeagent.model.events import ClaimRefused

PREPARE_SECONDS: Final = 40.0
"""How long a claim may take; the kubelet gives up after 45."""
AT_ONCE: Final = 16
"""Claims of one call in work at a time: more would open as many connections, and wait for the one journal."""
REFUSED_MAX: Final = 512
"""Refused claims that are remembered for the condition."""

T = TypeVar("T")
Answer: TypeAlias = Callable[[ClaimReference], Coroutine[Any, Any, None]]


class Answers:
    """Answers each claim of a call, and reports refused claims."""

    def __init__(self, bus: Bus, conditions: Conditions, name: str) -> None:
        self._bus, self._conditions, self._name = bus, conditions, name
        self._refused: dict[str, str] = {}
        self._log = get_logger(component=name)

    async def answer_all(
        self, claims: Iterable[ClaimReference], work: Callable[[ClaimReference], Awaitable[T]], failed: str, late: str
    ) -> dict[str, T | str]:
        """By uid the result of the work, or the obstacle in words that begin with `failed` or `late`."""
        answers: dict[str, T | str] = {}
        until = anyio.current_time() + PREPARE_SECONDS

        async def answer(reference: ClaimReference) -> None:
            try:
                with anyio.fail_after(max(0.0, until - anyio.current_time())):
                    answers[reference.uid] = await work(reference)
                self._report_refused(reference, "")
            except NodeagentError as error:
                answers[reference.uid] = self._report_refused(reference, f"{failed}{error}")
            except TimeoutError:
                reason = f"{late} {PREPARE_SECONDS:g} s; the next try goes on from here"
                answers[reference.uid] = self._report_refused(reference, reason)

        await _for_each(claims, answer)
        self._show_refused()
        return answers

    def _report_refused(self, reference: ClaimReference, reason: str) -> str:
        """Report a refused claim or, with an empty reason, the end of a refusal; conditions follow after the call."""
        name = reference.describe()[:200]
        if reason:
            fact = ClaimRefused(uid=reference.uid[:80], claim=name, reason=reason)
            self._bus.publish_fact(fact, source=self._name)
            self._log.warning("claim_refused", claim=name, reason=reason)
            self._refused[name] = reason
            while len(self._refused) > REFUSED_MAX:
                del self._refused[next(iter(self._refused))]
        else:
            self._refused.pop(name, None)
        return reason

    def _show_refused(self) -> None:
        """Set the condition once for all claims of a call: each change publishes all conditions."""
        self._conditions.replace("claim-refused", {key: f"{key}: {text}" for key, text in self._refused.items()})


async def _for_each(claims: Iterable[ClaimReference], answer: Answer) -> None:
    """Answer several at once, each uid once; a single claim without a task of its own, because a pod is waiting."""
    references = list({claim.uid: claim for claim in claims}.values())
    if len(references) == 1:
        await answer(references[0])
        return
    waiting = iter(references)

    async def answer_waiting() -> None:
        for reference in waiting:
            await answer(reference)

    async with anyio.create_task_group() as tasks:
        for _ in references[:AT_ONCE]:
            tasks.start_soon(answer_waiting)
