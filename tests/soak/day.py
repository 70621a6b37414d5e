"""A day on a node: pods come and go, something breaks and is mended now and then, the agent restarts twice.

Everything is drawn from a seed. After each part of the day all faults are taken back, and what must then hold is what
the chaos stories ask for; nothing may be lost on the way, and nothing of the agent's may have grown.
"""

import signal
import time
from collections.abc import Sequence
from random import Random

import anyio

from tests.chaos import repair_story, room_story, story
from tests.chaos.machine import Machine
from tests.chaos.repaired_machine import RepairedMachine
from tests.chaos.story import Step
from tests.soak.measures import Moment, look

PARTS = 24
"""Looks at the agent; between two of them the node lives."""
RESTARTS = {2: signal.SIGTERM, 4: signal.SIGKILL}
"""After which parts the agent is ended; the rest is one life."""
PAUSE_SECONDS = 0.25
"""Of the world's time, between two steps: a kubelet does not admit faster because a clock runs faster."""
WEIGHTS: dict[Step, int] = {
    story.add_pod: 50,
    story.delete_pod: 40,
    story.tell_xid: 3,
    story.lose_gpu: 2,
    story.restore_gpu: 6,
    story.cut_gpu: 2,
    story.reload_agent: 2,
    story.restart_kubelet: 2,
    story.drop_plugin: 1,
    story.kill_worker: 1,
    story.confuse_api: 1,
    story.lose_api: 1,
    story.find_api: 3,
    story.restart_runtime: 1,
}


ROOM_WEIGHTS: dict[Step, int] = {
    **WEIGHTS,
    room_story.add_part: 30,
    room_story.delete_part: 25,
    room_story.start_part_again: 4,
    room_story.prepare_claim: 16,
    room_story.unprepare_claim: 14,
    room_story.prepare_again: 3,
    room_story.ask_layout: 2,
    room_story.switch_door: 3,
    room_story.kill_daemon: 1,
    room_story.damage_table: 1,
    room_story.add_camera: 6,
}
"""On a node all of whose doors are open."""
REPAIR_WEIGHTS: dict[Step, int] = {
    repair_story.break_gpu: 3,
    repair_story.answer_reset: 1,
    repair_story.open_file: 1,
    repair_story.close_file: 2,
    repair_story.die_of_fault: 2,
    repair_story.reboot_node: 1,
}
"""On a node whose agent repairs GPUs, besides."""


def plan_pace(speed: int) -> Sequence[str]:
    """Settings that let the agent keep up: limits that protect it from neighbours are in the world's seconds."""
    limit = min(300, 5 * speed)
    return (
        f"inventory.sample_seconds={max(1.0, speed / 4)}",
        f"inventory.rescan_seconds={30 * max(1, speed // 8)}",
        f"health.poll_seconds={max(5.0, speed / 4)}",
        "health.flap_limit=1000",
        "health.unknown_after_missed_polls=20",
        f"driver.call_timeout_seconds={limit}",
        f"kubelet.call_timeout_seconds={limit}",
        f"kubernetes.request_timeout_seconds={limit}",
        "kubernetes.catch_up_max_seconds=1",
        f"labels.hold_seconds={speed / 4}",
        f"shutdown.total_seconds={min(300, 18 * speed)}",
    )


class Day:
    """So many hours of an agent's time, at so many times the world's pace."""

    def __init__(
        self, machine: Machine, *, hours: float, speed: int, seed: int, pause_seconds: float = PAUSE_SECONDS
    ) -> None:
        self._machine, self._hours, self._speed, self._pause_seconds = machine, hours, speed, pause_seconds
        self._chance = Random(seed)
        self.moments: list[Moment] = []
        """Of the agent's last life."""
        self.steps = 0

    async def live(self) -> None:
        """The whole day.

        Raises:
            Violated: something did not hold.
        """
        machine = self._machine
        began = time.monotonic()
        await machine.calm()
        await self._look(began)
        part_seconds = self._hours * 3600 / self._speed / PARTS
        for part in range(1, PARTS + 1):
            await self._live_part(began + part * part_seconds)
            if part in RESTARTS:
                await machine.end_agent(RESTARTS[part])
                self.moments.clear()
            await machine.calm()
            await machine.check()
            await self._look(began)

    async def _live_part(self, until: float) -> None:
        while time.monotonic() < until:
            weights = WEIGHTS if self._machine.rooms is None else ROOM_WEIGHTS
            weights = weights | REPAIR_WEIGHTS if isinstance(self._machine, RepairedMachine) else weights
            (step,) = self._chance.choices(list(weights), list(weights.values()))
            await step(self._machine, self._chance)
            self._machine.steps[step.__name__] += 1
            await self._machine.check()
            self.steps += 1
            await anyio.sleep(min(self._pause_seconds, max(0.0, until - time.monotonic())))

    async def _look(self, began: float) -> None:
        self.moments.append(await look(self._machine.agent, (time.monotonic() - began) * self._speed / 3600))
