"""Who lives behind the other doors of a node: pods with parts, claims, layouts, what people choose.

Owns the orders and the account of who has what; whether faults are there, and when all is to be well, is the machine's.
"""

import hashlib
import time
from collections import Counter
from collections.abc import Awaitable, Callable, Collection
from typing import Any

import anyio
from anyio.to_thread import run_sync

from nodeagent.edge.kubelet.proto.device_plugin_pb2 import ContainerAllocateResponse
from nodeagent.model.claims import ClaimReference
from nodeagent_sim.kubelet.checkpoint import parse_checkpoint
from nodeagent_sim.kubelet.kubelet import KubeletDown, StandInKubelet
from nodeagent_sim.kubelet.pods import AdmissionRefused, ContainerStartFailed
from tests.chaos.hardware import GPUS, Gpus
from tests.chaos.holdings import ALL_CORES, Holding, Holdings, find_part_faults
from tests.chaos.rooms import (
    BLOCK_BYTES,
    CAMERA,
    CAMERAS,
    CORE,
    LAYOUTS,
    MEMORY,
    MIG_LABEL,
    RULES,
    SILENCE,
    Rooms,
    write_claim,
)
from tests.chaos.surroundings import Surroundings
from tests.chaos.truth import Violated

NAMESPACE = "chaos"
GIB = 1 << 30
OK = 200
NOBODY = "nobody could be told"
SCHEDULER_SECONDS, AGAIN_SECONDS = 2.0, 0.1
"""A pod waits for room somewhere; where there is none for long, it is sent here all the same."""


class Tenants:
    def __init__(self, rooms: Rooms, gpus: Gpus, kubelet: StandInKubelet, surroundings: Surroundings) -> None:
        self._rooms, self._gpus, self._kubelet, self._around = rooms, gpus, kubelet, surroundings
        self.memory_bytes = gpus.fake.profile.seats[0].model.total_bytes
        self.holdings = Holdings(self.memory_bytes)
        self.claims: dict[str, ClaimReference] = {}
        """Those that were ever asked for and not yet put away, whether or not they were made ready."""
        self.ended: dict[str, ClaimReference] = {}
        self._were_ready: set[str] = set()
        self.doors = {int(gpu): str(rule["door"]) for rule in RULES for gpu in rule["gpus"]}
        """As somebody has asked last."""
        self._untold: set[int] = set()
        """GPUs whose doors were chosen while nobody listened, or could write it down."""
        self.layout, self._is_layout_new = "", False
        self._cut_as: dict[int, dict[str, int]] = {}
        """By GPU the devices that the last layout has, which stay when the label goes."""
        self._uids: dict[str, str] = {}
        self.did: Counter[str] = Counter()
        """What has come of those who came, and of what was asked for."""

    @property
    def pods(self) -> tuple[str, ...]:
        """Those with parts, oldest first."""
        return tuple(self._uids)

    # Parts.

    async def add_part(self, name: str, cores: int, blocks: int) -> str:
        """A pod comes for a part of a GPU; one that finds no room goes again."""
        with anyio.move_on_after(SCHEDULER_SECONDS):
            await self._kubelet.wait_until(lambda: self._is_offered(CORE, cores) and self._is_offered(MEMORY, blocks))
        if not all(self._kubelet.offers().get(each) for each in (CORE, MEMORY)):
            return "nobody offers parts"
        try:
            pod = await self._kubelet.add_pod(NAMESPACE, name, {CORE: cores, MEMORY: blocks})
        except (AdmissionRefused, ContainerStartFailed) as error:
            self.did["parts refused"] += 1
            self._kubelet.delete_pod(NAMESPACE, name)
            return f"refused: {error}"
        except KubeletDown:
            return "no kubelet"
        self.did["parts started"] += 1
        gpus = await run_sync(self._find_gpus, pod.uid)
        if len(gpus) != 1:
            raise Violated(f"{name} was started, and what it was told leads to the GPUs {gpus}")
        self._uids[name] = pod.uid
        self._check_door(name, gpus[0], "fractions")
        # Who has all of the cores has the GPU alone, and its memory with it.
        memory_bytes = self.memory_bytes if cores == ALL_CORES else blocks * BLOCK_BYTES
        self.holdings.take(name, Holding("fractions", gpus[0], cores=cores, memory_bytes=memory_bytes))
        self._around.show_container(pod.uid, NAMESPACE, name)
        return f"of GPU {gpus[0]}"

    async def start_again(self, name: str) -> str:
        """Its container has ended; what it gets now is what it had."""
        try:
            await self._kubelet.start_containers(NAMESPACE, name)
        except (ContainerStartFailed, KubeletDown) as error:
            return f"not now: {error}"
        gpus, had = await run_sync(self._find_gpus, self._uids[name]), self.holdings.all()[name].gpu
        if gpus not in ([had], []):  # a kubelet that has forgotten it tells nothing
            raise Violated(f"{name} had a part of GPU {had}, and was started again with {gpus}")
        self.did["parts started again"] += 1
        return f"of GPU {had}"

    def holdings_of_claims(self) -> tuple[str, ...]:
        return tuple(name for name, what in self.holdings.all().items() if what.door == "claims")

    def ended_claims(self) -> tuple[str, ...]:
        """Those that were put away; of those that were ready before, where there are any."""
        return tuple(name for name in self.ended if name in self._were_ready) or tuple(self.ended)

    def delete_part(self, name: str) -> None:
        self._around.hide_container(self._uids.pop(name))
        self.holdings.give_back(name)
        self._kubelet.delete_pod(NAMESPACE, name)

    def _is_offered(self, resource: str, count: int) -> bool:
        """Whether a scheduler would send somebody here."""
        offer = self._kubelet.offers().get(resource)
        return offer is not None and offer.allocatable >= count

    def _find_gpus(self, uid: str) -> list[int]:
        """By the files that its runtime reads; a kubelet that has forgotten everything has written nothing down."""
        if not self._kubelet.checkpoint_file.exists():
            return []
        answers = [
            ContainerAllocateResponse.FromString(entry.answer)
            for entry in parse_checkpoint(self._kubelet.checkpoint_file.read_bytes()).entries
            if entry.pod_uid == uid
        ]
        names = {device.name for answer in answers for device in answer.cdi_devices}
        return self._rooms.find_gpus(names)

    def note_whole(self, name: str, devices: Collection[str]) -> None:
        """A pod was given these by the device plugin."""
        for device in devices:
            gpu = self._gpus.find_gpu(device)
            if gpu is not None:
                self.holdings.take(f"{name} {device}", Holding("whole", gpu, device=device))

    def forget_whole(self, name: str) -> None:
        for who in [who for who in self.holdings.all() if who.startswith(f"{name} ")]:
            self.holdings.give_back(who)

    # Claims.

    async def prepare(self, name: str, gpu: int, *, share: tuple[int, int] | None, is_mps: bool) -> str:
        """A scheduler has allocated it, rightly or not, and the kubelet asks."""
        cores, memory_gib = share or (0, 0)
        claims = self._around.api.claims
        claim = write_claim(claims, name, gpu, memory_gib=memory_gib, cores=cores, is_mps=is_mps and share is None)
        self.claims[name] = claim
        problem = await self._ask(self._rooms.prepare, claim)
        if problem:
            self.did["claims refused"] += 1
            return f"not made ready: {problem[:80]}"
        self.did["claims ready" if not is_mps or share else "claims ready by MPS"] += 1
        self._were_ready.add(name)
        self._check_door(name, gpu, "claims")
        if share is None:
            what = Holding("claims", gpu, device=f"gpu-{gpu}", is_mps=is_mps)
        else:
            what = Holding("claims", gpu, cores=cores, memory_bytes=memory_gib * GIB)
        self.holdings.take(name, what)
        return "ready"

    async def _ask(self, ask: Callable[[ClaimReference], Awaitable[str]], claim: ClaimReference) -> str:
        """Again while nobody answers, for a while, as a kubelet does."""
        until = time.monotonic() + SCHEDULER_SECONDS
        while (problem := await ask(claim)).startswith(SILENCE) and time.monotonic() < until:  # noqa: ASYNC110  a process
            await anyio.sleep(AGAIN_SECONDS)
        return problem

    async def prepare_again(self, name: str) -> str:
        """The kubelet asks a second time, as it does when it has restarted."""
        problem = await self._ask(self._rooms.prepare, self.claims[name])
        self.did["claims ready again"] += not problem
        return problem[:80] or "ready again"

    async def prepare_late(self, name: str) -> str:
        """The kubelet asks for one that it has had put away, whose pods are gone."""
        problem = await self._ask(self._rooms.prepare, self.ended[name])
        if problem:
            self.did["claims refused late"] += 1
            return problem[:80]
        if name in self._were_ready:
            raise Violated(f"claim {name} was put away, and was made ready again for a pod that is gone")
        # There was nothing to be put away, which only the agent of that life remembers.
        self.claims[name] = self.ended.pop(name)
        return f"for nobody: {await self.unprepare(name)}"

    async def unprepare(self, name: str) -> str:
        """Its last pod has ended, so that nobody has it; asked again until it is so, for the answer may be lost."""
        self.holdings.give_back(name)
        problem = await self._ask(self._rooms.unprepare, self.claims[name])
        if problem:
            return f"not put away: {problem[:80]}"
        self.did["claims put away"] += 1
        self.ended[name] = self.claims.pop(name)
        return "put away"

    # Doors and layouts.

    def _check_door(self, who: str, gpu: int, door: str) -> None:
        """Nobody new comes in by a door that a GPU has no longer, or is to have no longer."""
        if gpu not in self._untold and self.doors[gpu] != door:
            raise Violated(f"{who} was given GPU {gpu} by {door}, and its door was set to {self.doors[gpu]}")

    async def set_allocation_mode(self, gpu: int, door: str) -> str:
        self.doors[gpu] = door
        self._untold.add(gpu)
        status, said = await self._rooms.order("/api/v1/door", {"gpu": str(gpu), "door": door})
        if status != OK:
            return NOBODY
        self.did["doors set"] += 1
        self._untold.discard(gpu)
        return said.strip()[:100]

    def set_layout(self, name: str) -> None:
        """The node is labelled, or its label goes."""
        self._is_layout_new, self.layout = True, name
        self._cut_as |= {int(gpu): part.get("devices", {}) for part in LAYOUTS.get(name, ()) for gpu in part["gpus"]}
        self._around.api.put_label(MIG_LABEL, name or None)

    def is_layout_true(self) -> bool:
        """Whether the GPUs are as the label has them."""
        return all(self._gpus.count_slots(gpu) == sum(devices.values()) for gpu, devices in self._cut_as.items())

    def is_under_way(self) -> bool:
        """Whether something that was asked for is not done, or could not be said to anybody yet."""
        return bool(self._untold) or not self.is_layout_true()

    def count_offers(self) -> dict[str, int]:
        """What the kubelet would give out of each resource, once all is as it was asked for."""
        counts = {CAMERA: len(CAMERAS)}
        for gpu in range(GPUS):
            if self._gpus.is_broken(gpu) or not self.is_behind(gpu, self.doors[gpu]):
                continue
            for name, count in self._list_of(gpu):
                counts[name] = counts.get(name, 0) + count
        return counts

    def _list_of(self, gpu: int) -> list[tuple[str, int]]:
        if self.doors[gpu] == "fractions":
            return [(CORE, ALL_CORES), (MEMORY, self.memory_bytes // BLOCK_BYTES)]
        if self.doors[gpu] != "whole":
            return []
        if cut := self._cut_as.get(gpu):
            return [(f"nvidia.com/mig-{name}", count) for name, count in cut.items()]
        return [(name, 1) for name in self._gpus.list_resources(gpu)]

    async def settle(self) -> str:
        """Have all that was begun end: what it still waits for, if anything."""
        for gpu, door in self.doors.items():
            for who in self.holdings.list_of(gpu):
                if self.holdings.all()[who].door != door:
                    await self._send_away(who)
            if gpu in self._untold and await self.set_allocation_mode(gpu, door) == NOBODY:
                return f"door {door} for GPU {gpu}"
        for name in [name for name in self.claims if name not in self.holdings.all()]:
            if problem := await self._rooms.unprepare(self.claims[name]):
                return f"claim {name}: {problem}"
            self.ended[name] = self.claims.pop(name)
        if not self.is_layout_true():
            if self._around.api.labels().get(f"{MIG_LABEL}.state") == "failed":
                await self._rooms.order("/api/v1/layout", {"layout": ""})
            return f"layout {self.layout}"
        self.did["layouts in place"] += self._is_layout_new
        self._is_layout_new = False
        return ""

    async def _send_away(self, who: str) -> None:
        """So that a door or a layout can change."""
        if who in self._uids:
            self.delete_part(who)
        elif who in self.claims:
            await self.unprepare(who)

    # What must hold.

    def check_told(self, parts: dict[str, Any], claims: dict[str, Any], doors: list[dict[str, Any]]) -> list[str]:
        """What of the agent's own account is wrong."""
        held = {self._uids[name]: what for name, what in self.holdings.all().items() if name in self._uids}
        uuids = {gpu: self._gpus.fake.gpu(gpu).uuid.decode() for gpu in range(GPUS)}
        faults = find_part_faults([one["binding"] for one in parts["bound"]], held, uuids, self.memory_bytes)
        told = [one["claim"]["name"] for one in claims["prepared"]]
        mine = [name for name, what in self.holdings.all().items() if what.door == "claims"]
        faults += [f"claim {name} is not known" for name in mine if told.count(name) != 1]
        indexes = [one["index"] for one in doors]
        if len(indexes) != len(set(indexes)):
            faults.append(f"doors of {indexes}")
        had = {what.gpu: what.door for what in self.holdings.all().values()}
        faults += [
            f"GPU {one['index']} goes by {one['door']}, and is had by {had[one['index']]}"
            for one in doors
            if one["door"] != had.get(one["index"], one["door"])
        ]
        return faults

    def are_slices_true(self) -> bool:
        """Whether schedulers are told of every whole GPU that goes by claims, and of no other, with nothing broken."""
        slices = self._around.api.slices.values()
        told = sorted(device["name"] for one in slices for device in one["spec"]["devices"])
        return told == [f"gpu-{gpu}" for gpu in sorted(self.doors) if self.is_behind(gpu, "claims")]

    def is_behind(self, gpu: int, door: str) -> bool:
        """Whether it was asked for last, and whoever came by another one is gone."""
        return {self.doors[gpu], *(self.holdings.all()[who].door for who in self.holdings.list_of(gpu))} == {door}

    def list_left_over(self, parts: dict[str, Any], claims: dict[str, Any]) -> list[str]:
        """What the agent knows of and nobody has."""
        bound = {one["binding"]["pod"]["uid"] for one in parts["bound"]}
        told = {one["claim"]["name"] for one in claims["prepared"]}
        return sorted((bound - set(self._uids.values())) | (told - set(self.claims)))

    def count_daemons(self) -> tuple[int, int]:
        wanted = sum(what.is_mps for what in self.holdings.all().values())
        return wanted, len(self._rooms.list_daemons())

    def is_table_whole(self) -> bool:
        """Whether the runtime shim could use its table."""
        try:
            head, _, body = self._rooms.table.read_bytes().partition(b"\n")
            _, _, length, checksum = head.split(b" ")
        except (OSError, ValueError):
            return False
        return int(length) == len(body) and hashlib.sha256(body).hexdigest().encode() == checksum
