"""Compares the schedulers' choices on pods with the GPUs of their containers, and corrects the pods.

A choice may not have been obeyed: the GPUs could not be given, or the choice was unknown at the container's start, as
the agent had just started or the API server was late with its news.
Refuses to argue: a correction that was overwritten is repeated only after the pods are listed anew.
"""

from collections.abc import Callable, Mapping
from typing import Final

import anyio

from nodeagent.components.fractions.bind import plan_correction
from nodeagent.components.fractions.decide import FractionView
from nodeagent.components.fractions.pod_resolver_task import NodePods
from nodeagent.config.live import LiveSettings
from nodeagent.core.channels.bus import Bus
from nodeagent.core.channels.mailbox import Waker
from nodeagent.model.journal import Binding, FractionTable

GATHER_SECONDS: Final = 0.05
"""How long changes are gathered: several containers of a pod start together."""


class ChoiceCheck:
    """A task of the component `fractions`."""

    def __init__(
        self, bus: Bus, live: LiveSettings, pods: NodePods, find_view: Callable[[Binding], FractionView | None]
    ) -> None:
        """`find_view` finds the view of a binding's devices."""
        self._bus, self._live, self._pods, self._find_view = bus, live, pods, find_view
        self._waker = Waker()
        self._followings = 0
        self._corrected: dict[int, Mapping[str, str]] = {}
        """The annotations written since the last list of pods, by number of the binding."""

    async def run(self) -> None:
        """Compare whenever a pod or a binding has changed, until cancelled."""
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(self._follow_pods, name="fractions choices pods")
            tasks.start_soon(
                self._waker.follow,
                self._bus.watch(FractionTable, client="fractions choices"),
                name="fractions choices table",
            )
            while True:
                await self._waker.wait()
                await anyio.sleep(GATHER_SECONDS)
                self._compare()

    async def _follow_pods(self) -> None:
        known = self._pods.known
        while True:
            known = await self._pods.wait_other(known, 0.0)
            self._waker.wake()

    def _compare(self) -> None:
        settings, table = self._live.now.fractions, self._bus.read(FractionTable)
        if table is None or not (settings.use_scheduler_choice and settings.correct_choice):
            return
        if self._followings != self._pods.followings:
            self._followings = self._pods.followings
            self._corrected.clear()
        bindings = table.bindings
        pods = {each.pod.uid: each for each in self._pods.known.values()}
        for number in self._corrected.keys() - bindings.keys():
            del self._corrected[number]
        for number, binding in bindings.items():
            pod, view = pods.get(binding.pod.uid), self._find_view(binding)
            if pod is None or view is None:
                continue
            correction = None if pod.is_finished else plan_correction(view, pod, binding)
            if correction is not None and self._corrected.get(number) != correction.annotations:
                self._corrected[number] = correction.annotations
                self._pods.correct(correction)
