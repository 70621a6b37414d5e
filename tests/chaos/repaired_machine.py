"""A node whose agent repairs GPUs: what the truth asks of it besides, and who does there what no agent does.

A kubelet ends pods that were evicted, a node reboots that was asked to, a person mends what is left to persons.
"""

import json
import signal
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Final

import anyio
from anyio.abc import TaskStatus

from tests.chaos.cluster_slots import ClusterSlots
from tests.chaos.machine import OK, Machine
from tests.chaos.pace import HASTE as IN_HASTE
from tests.chaos.rooms import Rooms
from tests.chaos.truth import Violated
from tests.chaos.workshop import WEEK_SECONDS, Workshop
from tests.fakes.nvml.control import FakeNvml
from tests.faults.steps.armed import HASTE, SECONDS

SETTLED_SECONDS: Final = 120.0
"""For several sessions, one after the other, and the polls after each start of the agent."""
LATE_ROUNDS: Final = 40
"""After which a person removes whoever the drain asks no more."""
ROUND_SECONDS: Final = 0.1
PERSONS: Final = (
    "too many of the last were not proven",
    "service is a person's work",
    "the agent reloads no driver",
    "by the agent's own fault",
    "within 7 days",
)
"""Obstacles that a person takes away."""
UNSEEN: Final = "was not seen to leave"


class RepairedMachine(Machine):
    """Owns the workshop."""

    def __init__(
        self,
        directory: Path,
        fake: FakeNvml,
        seed: int,
        *,
        pace: Sequence[str] = IN_HASTE,
        speed: int = 1,
        rooms: Rooms | None = None,
    ) -> None:
        super().__init__(directory, fake, seed, pace=pace, speed=speed, rooms=rooms)
        self._speed = speed
        self.workshop = Workshop(directory, self.gpus, self.truth, self.kubelet, self.surroundings)
        self._rounds = 0
        self.is_rebooting = False
        """While nobody else may start the agent again."""

    def plan_environment(self) -> dict[str, str]:
        return {**super().plan_environment(), **self.workshop.environment, HASTE: SECONDS if self._speed == 1 else "no"}

    def plan_settings(self) -> dict[str, object]:
        settings = super().plan_settings()
        environment = json.loads(str(settings["driver.worker_environment"])) | self.workshop.worker_environment
        more = self.workshop.plan_settings(self._speed)
        return {**settings, **more, "driver.worker_environment": json.dumps(environment)}

    def note_pod(self, name: str, devices: frozenset[str]) -> None:
        super().note_pod(name, devices)
        self.workshop.note_pod(name, devices)

    def delete_pod(self, name: str) -> None:
        super().delete_pod(name)
        self.workshop.drop_pod(name)

    def set_clock(self, seconds: float) -> None:
        super().set_clock(seconds + self.workshop.truth.week * WEEK_SECONDS)

    @property
    def slots(self) -> ClusterSlots:
        return self.workshop.slots

    async def run(self, *, task_status: TaskStatus[None]) -> None:
        """Be the programs, and the kubelet that ends whoever has to leave, until cancelled."""
        async with anyio.create_task_group() as tasks:
            await tasks.start(self.workshop.serve)
            task_status.started()
            while True:
                for name in self.workshop.list_leaving():
                    self.workshop.did["pods that left"] += 1
                    self.delete_pod(name)
                await anyio.sleep(ROUND_SECONDS)

    async def reboot(self) -> None:
        """No process and no pod outlives it."""
        self.workshop.did["reboots"] += 1
        self.is_rebooting = True
        await self.agent.end(signal.SIGKILL)
        for name in self.truth.pods:
            self.delete_pod(name)
        self.gpus.mend()
        self.workshop.boot()
        self.agent.begin()
        self.is_rebooting = False

    async def read_repairs(self) -> dict[str, Any] | None:
        """The agent's account of its sessions; nothing while it cannot be asked."""
        status, body = await self.agent.get("/api/v1/repairs")
        if status != OK:
            return None
        told: dict[str, Any] = json.loads(body)
        return told

    async def check(self) -> None:
        await super().check()
        self.workshop.slots.check()
        if missing := await self._find_lost_receipts():
            raise Violated(f"the agent has forgotten of what these pods died: {missing}")

    async def _find_lost_receipts(self) -> list[str]:
        """Pods of whose fault the agent has told once, and tells no more."""
        died, blamed = self.workshop.died, self.workshop.blamed
        if not died or await self.read_table() is None:
            return []
        status, body = await self.agent.get("/api/v1/receipts")
        if status != OK:
            return []
        told = {one["pod"] for one in json.loads(body) if one["faults"]} & set(died)
        self.workshop.did["receipts of faults"] += len(told - blamed)
        lost = sorted(blamed - told)
        blamed |= told
        return lost

    async def check_health_told(self) -> None:
        """A repair closes healthy GPUs too: what is offered meanwhile depends on how far it came."""

    async def settle(self) -> None:
        """Every session ends, and leaves nothing behind."""
        self.workshop.show_needs()
        self.slots.leave()
        self.slots.resume()
        self.workshop.answers.clear()
        self.surroundings.api.store.budgets.clear()
        for pid in list(self.workshop.truth.opened):
            self.workshop.close_file(pid)
        self._rounds = 0
        await self.wait(self.is_repaired, "without a session or a GPU that needs a repair", SETTLED_SECONDS)
        await super().settle()
        await self.wait(self.is_restored, "with all settings put back", SETTLED_SECONDS)

    async def is_restored(self) -> bool:
        state = await self.read_repairs()
        left = self.workshop.list_changed() + self.slots.list_own()
        self.waits_for = f"{left}, {state and state['closed_gpus']}"
        return not left and state is not None and not state["closed_gpus"]

    async def is_repaired(self) -> bool:
        """Whether no session is left; a person and the node do their part of it."""
        self._rounds += 1
        if self.workshop.is_reboot_due:
            await self.reboot()
            return False
        state = await self.read_repairs()
        if state is None or state["mode"] != "act" or state["unsettled"]:
            return False
        self.workshop.note_found(state["sessions"])
        standing = [one for one in state["sessions"] if one["ending"] is None]
        if not standing:
            self.workshop.truth.forget_wrong()
            self.workshop.show_needs()
            return not self.workshop.truth.needs
        obstacles = "; ".join(obstacle for plan in state["plans"] for obstacle in plan["obstacles"])
        self.waits_for = f"{standing}: {obstacles}, needed {self.workshop.truth.needs}"
        if any(each in obstacles for each in PERSONS):
            self.workshop.did["visits of a person"] += 1
            self.slots.resume()
            await self.reboot()
        elif UNSEEN in obstacles and not self.workshop.resetting:
            await self.end_agent(signal.SIGTERM)
        elif self._rounds % LATE_ROUNDS == 0:
            self._send_away({gpu for plan in state["plans"] for gpu in plan["gpus"]})
        else:
            await anyio.sleep(ROUND_SECONDS)
        return False

    def _send_away(self, uuids: set[str]) -> None:
        """Pods that nobody asks any more, by a person."""
        for name, held in list(self.truth.held().items()):
            gpus = {self.gpus.find_gpu(device) for device in held}
            if any(self.gpus.fake.gpu(gpu).uuid.decode() in uuids for gpu in gpus if gpu is not None):
                self.workshop.did["pods removed by a person"] += 1
                self.delete_pod(name)


def count_done(machine: Machine) -> dict[str, int]:
    """What has come of whatever was done by other doors and about repairs."""
    doors = machine.tenants.did if machine.tenants else {}
    return {**doors, **(machine.workshop.did if isinstance(machine, RepairedMachine) else {})}
