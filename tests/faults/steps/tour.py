"""A tour through a node's day: everything that makes the agent write something down, whoever dies on the way.

What neighbours do is done again until it has worked, as they do it: a kubelet asks again, a person orders again.
"""

import json
import signal
import time
from collections.abc import Awaitable, Callable, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

import anyio
from anyio.to_thread import run_sync

from nodeagent.model.claims import ClaimReference
from nodeagent.rules.container_receipts import RECEIPT_FOLDERS
from nodeagent_sim.kubelet.kubelet import KubeletDown
from nodeagent_sim.kubelet.pods import AdmissionRefused, ContainerStartFailed
from tests.chaos.hardware import GPUS, WHOLE
from tests.chaos.machine import NAMESPACE
from tests.chaos.repaired_machine import RepairedMachine
from tests.chaos.rooms import CAMERA, CORE, MEMORY, MIG_LABEL, write_claim

OK = 200
DAMAGES = 5
"""More than there are copies kept of damaged files."""
PATIENCE_SECONDS = 300.0
"""After the last life's start; reached only by a failure."""
AGAIN_SECONDS = 0.05
GPU_OF_PERSON = 3
"""That somebody gives another door."""


class Unreached(Exception):
    """Something on the tour does not come about."""


class Expected:
    """What was acknowledged, and is not to be forgotten."""

    def __init__(self) -> None:
        self.uids: dict[str, str] = {}
        """Of the pods, by name."""
        self.devices: set[str] = set()
        self.claims: set[str] = set()


class Tour:
    """Through one node, whose agent may die any number of times."""

    def __init__(
        self, machine: RepairedMachine, arm: Callable[[], Mapping[str, str]], count_deaths: Callable[[], int]
    ) -> None:
        """`arm` says what the environment of each life has besides, `count_deaths` how many have died of a step."""
        assert machine.rooms is not None
        self._machine, self._rooms, self._arm, self._count_deaths = machine, machine.rooms, arm, count_deaths
        self.lives = self.rounds = 0
        self.last_status = 0
        """How the life before this one ended."""
        self.left_over: list[str] = []
        self.stages: list[tuple[str, float]] = []
        """How long each took, in seconds."""
        self._expected = Expected()

    async def take(self) -> None:
        """From the start of the node to its end.

        Raises:
            Unreached: something does not come about, however long the agent lives.
        """
        async with anyio.create_task_group() as tasks:
            await tasks.start(self._machine.kubelet.run)
            await tasks.start(self._machine.run)
            await self._machine.start(self._arm())
            self.lives = 1
            try:
                async with anyio.create_task_group() as attended:
                    attended.start_soon(self._attend)
                    await self._go_until_nobody_dies()
                    attended.cancel_scope.cancel()
            finally:
                with anyio.CancelScope(shield=True):
                    await self._machine.stop()
            tasks.cancel_scope.cancel()

    async def _attend(self) -> None:
        """Be the one who starts the agent again, as systemd does."""
        agent = self._machine.agent
        while True:
            if agent.exit_status is not None and not self._machine.is_rebooting:
                self.last_status = agent.exit_status
                agent.once = self._arm()
                agent.begin()
                self.lives += 1
            await anyio.sleep(AGAIN_SECONDS)

    async def _go_until_nobody_dies(self) -> None:
        """Round after round: who was killed before a step may have left nothing to do of it, and what follows it."""
        deaths = -1
        while deaths != (deaths := self._count_deaths()):
            self.rounds += 1
            await self._go()

    async def _go(self) -> None:
        await self._until("ready", self._is_ready)
        await self._cut()
        await self._start_pod("whole", {WHOLE: 1})
        await self._forget()
        await self._start_pod("camera", {CAMERA: 1})
        await self._start_pod("part", {CORE: 30, MEMORY: 8})
        await self._start_pod("other", {CORE: 20, MEMORY: 4})
        await self._claim()
        await self._set_allocation_mode("fractions")
        await self._damage_table()
        await self._order("/api/v1/part", {"pod": f"{NAMESPACE}/part", "cores": 40})
        await self._until("all is still known", self._is_known)
        await self._stop_in_order()
        await self._until("all is known after an orderly end", self._is_known)
        await self._end()
        await self._repair()
        await self._damage_state()

    async def _is_ready(self) -> bool:
        return (await self._machine.agent.get("/readyz"))[0] == 200

    async def _start_pod(self, name: str, resources: dict[str, int]) -> None:
        kubelet = self._machine.kubelet

        async def start() -> bool:
            if not all(kubelet.offers().get(each, (0, 0))[1] for each in resources):
                return False
            pods = {pod.name: pod for pod in kubelet.pods}
            try:
                if name in pods:
                    await kubelet.start_containers(NAMESPACE, name)
                else:
                    await kubelet.add_pod(NAMESPACE, name, resources)
            except AdmissionRefused:
                kubelet.delete_pod(NAMESPACE, name)
                return False
            except (ContainerStartFailed, KubeletDown):
                return False
            return True

        await self._until(f"pod {name}", start)
        (pod,) = [pod for pod in kubelet.pods if pod.name == name]
        self._expected.uids[name] = pod.uid
        self._expected.devices |= kubelet.held_devices(NAMESPACE, name) if WHOLE in resources else set()
        await self._until(f"pod {name} is known", self._is_known)

    async def _forget(self) -> None:
        """The kubelet loses its checkpoint while the pod runs."""
        await self._machine.kubelet.forget()

        async def is_noted() -> bool:
            told = await self._read("allocations")
            return told is not None and any(one["forgotten"] for one in told[0])

        await self._until("who was forgotten is remembered", is_noted)

    async def _claim(self) -> None:
        claims = self._machine.surroundings.api.claims
        for claim in (
            write_claim(claims, f"share-{self.rounds}", 6, memory_gib=10, cores=20),
            write_claim(claims, f"daemon-{self.rounds}", 7, is_mps=True),
        ):

            async def prepare(claim: ClaimReference = claim) -> bool:
                return await self._rooms.prepare(claim) == ""

            await self._until(f"claim {claim.name}", prepare)
            self._expected.claims.add(claim.uid)
            await self._until(f"claim {claim.name} is known", self._is_known)
        await self._until("a daemon", self._has_daemon)

    async def _has_daemon(self) -> bool:
        return bool(await run_sync(self._rooms.list_daemons))

    async def _set_allocation_mode(self, door: str) -> None:
        await self._order("/api/v1/door", {"gpu": str(GPU_OF_PERSON), "door": door})

    async def _order(self, path: str, command: dict[str, object]) -> None:
        async def give() -> bool:
            return (await self._rooms.order(path, command))[0] == 200

        await self._until(f"{path} {command}", give)

    async def _cut(self) -> None:
        api = self._machine.surroundings.api
        for layout, wanted in (("sevenths", 7), ("whole", 0)):
            api.put_label(MIG_LABEL, layout)

            async def cut(wanted: int = wanted) -> bool:
                offer = self._machine.kubelet.offers().get("nvidia.com/mig-1g.10gb")
                label = api.labels().get(f"{MIG_LABEL}.state")
                return (offer.allocatable if offer else 0) == wanted and label == "success"

            await self._until(f"layout {layout}", cut)

    async def _damage_table(self) -> None:
        table = self._rooms.table
        whole = await run_sync(table.read_bytes)
        await run_sync(table.write_bytes, whole[: len(whole) // 2])
        self._machine.agent.send(signal.SIGHUP) if self._machine.agent.has_answered else None

        async def mended() -> bool:
            return await run_sync(table.read_bytes) == whole

        await self._until("the shim's table", mended)

    async def _end(self) -> None:
        claims = self._machine.surroundings.api.claims
        await self._set_allocation_mode("configured")
        self._expected = Expected()
        for pod in self._machine.kubelet.pods:
            self._machine.kubelet.delete_pod(pod.namespace, pod.name)
        lives, root = self.lives, self._rooms.mps_root
        for name, gpu in (("share", 6), ("daemon", 7)):
            claim = write_claim(claims, f"{name}-{self.rounds}", gpu)

            async def put_away(claim: ClaimReference = claim) -> bool:
                return await self._rooms.unprepare(claim) == ""

            await self._until(f"claim {name} put away", put_away)

        async def is_gone() -> bool:
            return self.lives != lives or not await run_sync(root.exists)

        # The last daemon takes with it what all of them share; what a life that was killed leaves goes with the next.
        await self._until("what daemons share is gone", is_gone)
        await self._until("nobody has anything", self._is_empty)
        await self._until("the receipts of containers are gone", self._has_no_receipts)

    async def _has_no_receipts(self) -> bool:
        place = self._machine.state_dir / RECEIPT_FOLDERS
        return not await run_sync(lambda: place.is_dir() and any(place.iterdir()))

    async def _repair(self) -> None:
        """A GPU is reset; where the agent dies of it, the node reboots."""
        gpu = self.rounds % GPUS
        self._machine.workshop.break_gpu(gpu, "reset")

        async def is_repaired() -> bool:
            self._machine.agent.once = self._arm()
            return await self._machine.is_repaired()

        await self._until(f"GPU {gpu} is repaired", is_repaired)
        await self._until(f"GPU {gpu} has its settings back", self._machine.is_restored)

    async def _is_empty(self) -> bool:
        told = await self._read("allocations", "parts", "claims", "mps")
        if told is None:
            return False
        allocations, parts, claims, mps = told
        return not (allocations or parts["bound"] or claims["prepared"] or mps.get("daemons"))

    async def _is_known(self) -> bool:
        """Whether the agent knows of all that was acknowledged, once, and whether containers can be made of it."""
        told = await self._read("allocations", "parts", "claims")
        if told is None:
            return False
        allocations, parts, claims = told
        devices = [device for one in allocations if one["resource"] == WHOLE for device in one["devices"]]
        bound = [one["binding"]["pod"]["uid"] for one in parts["bound"]]
        ready = [one["claim"]["uid"] for one in claims["prepared"] if one["claim"]["is_ready"]]
        wanted = [self._expected.uids[name] for name in ("part", "other") if name in self._expected.uids]
        names = [one["binding"]["cdi_name"] for one in parts["bound"]]
        return (
            sorted(devices) == sorted(self._expected.devices)
            and sorted(bound) == sorted(wanted)
            and sorted(ready) == sorted(self._expected.claims)
            and await run_sync(self._rooms.are_described, [*names, *(f"claim={uid}-" for uid in ready)])
        )

    async def _read(self, *names: str) -> list[Any] | None:
        """What the agent says; nothing while it cannot be asked."""
        ready = await self._machine.agent.get("/readyz")
        if "[+] gate allocations_recovered" not in ready[1]:
            return None
        told = [await self._machine.agent.get(f"/api/v1/{name}") for name in names]
        return [json.loads(body) for _, body in told] if all(status == OK for status, _ in told) else None

    async def _stop_in_order(self) -> None:
        """As many times as it takes until one life ends without dying of it."""
        agent = self._machine.agent

        async def stop() -> bool:
            if not await self._is_ready() or agent.exit_status is not None:
                return False
            lives = self.lives
            agent.send(signal.SIGTERM)
            while self.lives == lives:  # noqa: ASYNC110  a process has no event
                await anyio.sleep(AGAIN_SECONDS)
            return self.last_status == 0

        await self._until("an orderly end", stop)

    async def _damage_state(self) -> None:
        """What lies in the state directory is damaged while nobody runs, and nobody has anything to lose by it."""
        for number in range(DAMAGES):
            await self._until("ready", self._is_ready)
            self._machine.agent.send(signal.SIGKILL)
            await run_sync(damage, self._machine.state_dir, number)
            await run_sync(self._rooms.damage_program)
        await self._until("ready after damage", self._is_ready)
        await self._until("nothing half written left over", self._is_tidy)

    async def _is_tidy(self) -> bool:
        self.left_over = await run_sync(self._rooms.list_half_written)
        return not self.left_over

    async def _until(self, what: str, is_so: Callable[[], Awaitable[bool]]) -> None:
        began, since, lives = time.monotonic(), time.monotonic(), self.lives
        while True:
            with suppress(json.JSONDecodeError):  # cut off in the middle of an answer
                if await is_so():
                    self.stages.append((what, time.monotonic() - began))
                    return
            if self.lives != lives:
                since, lives = time.monotonic(), self.lives
            if time.monotonic() - since > PATIENCE_SECONDS:
                paths = ("/readyz", "/api/v1/conditions", "/api/v1/parts", "/api/v1/allocations", "/api/v1/claims")
                state = [await self._machine.agent.get(path) for path in paths]
                raise Unreached(
                    f"{what}: left over {self.left_over}, {state}, offered {dict(self._machine.kubelet.offers())}"
                )
            await anyio.sleep(AGAIN_SECONDS)


def damage(state: Path, number: int) -> None:
    """Of each file a half, and something else beside each."""
    for path in state.iterdir():
        if path.is_file() and path.suffix in (".json", ".journal"):
            content = path.read_bytes()
            path.write_bytes(content[: len(content) // 2])
            (state / f".{path.name}.{number:08x}.tmp").write_bytes(content)
