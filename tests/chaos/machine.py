"""A node that can be broken in every way: the agent as a process, a fake driver, a stand-in kubelet, a small disk,
an API server and a container runtime that come and go, a wall clock that is stepped.

Owns the hands, not the order in which they act; knows how to bring everything back and what must then hold.
"""

import contextlib
import json
import os
import signal
import time
from collections import Counter
from collections.abc import Awaitable, Callable, Collection, Mapping, Sequence
from pathlib import Path
from typing import Any

import anyio
from anyio.to_thread import run_sync

from nodeagent_sim.kubelet.kubelet import StandInKubelet
from nodeagent_sim.kubelet.pods import AdmissionRefused, ContainerStartFailed
from tests.bench.around.node import find_free_port
from tests.chaos.agent import Agent, measure_stall
from tests.chaos.hardware import GPUS, WHOLE, Gpus
from tests.chaos.pace import ALWAYS, HASTE
from tests.chaos.rooms import CAMERAS, Rooms
from tests.chaos.surroundings import Surroundings
from tests.chaos.tenants import Tenants
from tests.chaos.truth import Truth, Violated, find_doubled, find_left_over, find_missing
from tests.fakes.apiserver import NODE
from tests.fakes.clock.other import OtherClock
from tests.fakes.nvml.control import FakeNvml
from tests.faults.steps.armed import PROGRAMS

ARMED = "tests.faults.steps.armed"
"""The agent with programs of its own that need not be built, and a hand on its steps."""
NAMESPACE = "chaos"
READY_SECONDS = 5.0
"""From the last fault to readiness; what the machine kept the agent waiting comes on top, as it was measured."""
WELL_SECONDS = 15.0
"""From there until every neighbour has been told the truth, by the same measure."""
LONG_PATIENCE = 8.0
"""With settings that are not in haste, a device is free half a minute after its pod is gone."""
ROOMS_PATIENCE = 4.0
"""What has a part of a GPU is looked at every ten seconds, and gone after two looks."""
ROOM_PATHS = ("/api/v1/parts", "/api/v1/claims", "/api/v1/doors", "/api/v1/mps")
CUT_BY_LABEL = frozenset({0, 1})
OK = 200
LONG_ATTEMPTS, PROBE_PAUSE_SECONDS = 40, 0.25
LOSE_PATIENCE_SECONDS = 300.0
"""After which nothing is measured any more."""
PATHS = ("/livez", "/readyz", "/metrics", "/api/v1/state", "/api/v1/allocations", "/api/v1/gates", "/")


class Machine:
    def __init__(
        self,
        directory: Path,
        fake: FakeNvml,
        seed: int,
        *,
        pace: Sequence[str] = HASTE,
        speed: int = 1,
        rooms: Rooms | None = None,
    ) -> None:
        """`rooms` opens all doors; without them GPUs are given whole, as on most nodes."""
        self.rooms = rooms
        self.tenants: Tenants | None = None
        self.state_dir = directory / "state"
        self.gpus, self.truth = Gpus(fake, directory / "sys"), Truth()
        self.kubelet = StandInKubelet(directory / "kubelet", seed=seed)
        self.surroundings = Surroundings(directory)
        self.clock = OtherClock(directory, speed=speed)
        if rooms is not None:
            self.tenants = Tenants(rooms, self.gpus, self.kubelet, self.surroundings)
        self._pace = (*ALWAYS, *pace)
        # What a node's own settings take their time for; and to an agent whose clocks run fast the kubelet is slow.
        self._patience, self._attempts = (1.0, 1) if pace is HASTE else (LONG_PATIENCE, LONG_ATTEMPTS)
        self.refused = self.admitted = self.stale = 0
        self.steps: Counter[str] = Counter()
        """Taken, by kind."""
        self.last_refusal = ""
        self.slowest = {"ready": 0.0, "well": 0.0}
        """Seconds, without what the machine was measured to have kept the agent waiting."""
        self.longest_stall_seconds = 0.0
        self.waits_for = ""
        """What of the other doors is not yet as it was asked for."""
        self._directory, self._filler = directory, self.state_dir / "filler"
        self._agent: Agent | None = None

    @property
    def agent(self) -> Agent:
        assert self._agent is not None, "the node was not started"
        return self._agent

    async def start(self, once: Mapping[str, str] | None = None) -> None:
        """The neighbours, then the agent; its first life has this in its environment besides."""
        await self.surroundings.start()
        more = self.plan_environment()
        environment, module = {**self.clock.environment, **more}, ARMED if more else "nodeagent"
        self._agent = Agent(self._directory, self.plan_settings(), environment, module)
        self._agent.once = once or {}
        self._agent.begin()

    async def stop(self) -> None:
        if self._agent is not None:
            self._agent.close()
        if self.rooms is not None:
            self.rooms.close()
        await self.surroundings.stop()
        self.clock.close()

    def plan_environment(self) -> dict[str, str]:
        """What the agent has in its environment besides; empty for one without a hand on its steps."""
        return {PROGRAMS: str(self.rooms.programs)} if self.rooms is not None else {}

    def plan_settings(self) -> dict[str, object]:
        kubelet, fake = self._directory / "kubelet", self.gpus.fake
        return {
            "node.name": NODE,
            "node.state_dir": self.state_dir,
            "node.sys_dir": self._directory / "sys",
            "node.run_dir": self._directory / "run",
            "kubelet.root_dir": kubelet,
            "kubelet.device_plugins_dir": kubelet / "device-plugins",
            "kubernetes.kubeconfig": self.surroundings.kubeconfig,
            "runtime.socket": self.surroundings.runtime_socket,
            "cdi.dir": self._directory / "cdi",
            "cdi.hook_dir": self._directory / "hook",
            "driver.validation_dir": self._directory / "validations",
            "driver.nvml_library": fake.library_path,
            "driver.worker_environment": json.dumps({**fake.environment, **self.clock.environment}),
            "http.listen": f"127.0.0.1:{find_free_port()}",
            **dict(setting.split("=", maxsplit=1) for setting in self._pace),
            **(self.rooms.plan_settings() if self.rooms is not None else {}),
        }

    # The agent.

    async def end_agent(self, sent: signal.Signals) -> None:
        """Stop or kill it, and start another."""
        # Before it listens to signals, the default is what a service manager takes for an orderly end as well.
        fine = (0,) if self.agent.has_answered else (0, -signal.SIGTERM)
        status = await self.agent.end(sent)
        if sent is signal.SIGTERM and status not in fine:
            raise Violated(f"asked to stop, the agent ended with {status}")
        self.agent.begin()

    def set_clock(self, seconds: float) -> None:
        """People's time is so much later than the machine's."""
        self.clock.set_ahead(seconds)

    def kill_worker(self) -> None:
        """The process that calls NVML dies; the agent does not."""
        for pid in self.agent.list_children():
            with contextlib.suppress(ProcessLookupError):  # it was just being replaced
                os.kill(pid, signal.SIGKILL)

    # Pods.

    async def add_pod(self, name: str, resource: str, size: int) -> None:
        """Have a pod admitted; a refusal is an answer too, for as long as something is broken.

        None comes to a kubelet that knows nothing of the resource: no scheduler would send it there. A pod that was
        given a device that is no more, because the GPU was cut meanwhile, never runs.
        """
        if resource not in self.kubelet.offers():
            return
        try:
            await self.kubelet.add_pod(NAMESPACE, name, {resource: size})
        except (AdmissionRefused, ContainerStartFailed) as error:
            self.refused, self.last_refusal = self.refused + 1, str(error)
            self.kubelet.delete_pod(NAMESPACE, name)
            return
        devices = self.kubelet.held_devices(NAMESPACE, name)
        if not devices <= {*self.gpus.list_devices(), *CAMERAS}:
            self.stale += 1
            self.kubelet.delete_pod(NAMESPACE, name)
            return
        self.admitted += 1
        self.truth.admit(name, devices, size)
        self.note_pod(name, devices)

    def note_pod(self, name: str, devices: frozenset[str]) -> None:
        """It runs from now on."""
        if self.tenants is not None:
            self.tenants.note_whole(name, devices)

    def delete_pod(self, name: str) -> None:
        self.truth.delete(name)
        if self.tenants is not None:
            self.tenants.forget_whole(name)
        self.kubelet.delete_pod(NAMESPACE, name)

    def is_used(self, gpu: int) -> bool:
        """Whether a living pod has it, or a part of it."""
        held = frozenset().union(*self.truth.held().values())
        if self.tenants is not None and self.tenants.holdings.list_of(gpu):
            return True
        return any(self.gpus.find_gpu(device) == gpu for device in held)

    # The disk.

    def fill_disk(self) -> None:
        """Not a byte is left on the file system of the state directory."""
        with self._filler.open("ab", buffering=0) as file, contextlib.suppress(OSError):
            while True:
                file.write(b"x" * 512)

    def empty_disk(self) -> None:
        self._filler.unlink(missing_ok=True)

    # What must hold.

    async def check(self) -> None:
        """What holds at any time, as far as the agent can be asked now.

        Raises:
            Violated: it does not.
        """
        self._check_alive()
        await self._check_endpoints()
        told = await self.read_table()
        if told is None:
            return
        if doubled := find_doubled(told):
            raise Violated(f"the agent's table has {doubled} twice")
        if missing := find_missing(self.truth, told):
            raise Violated(f"the agent's table lacks {missing}, which pods hold")
        if faults := await self._find_faults():
            raise Violated(f"the agent's account is wrong: {faults}")

    def _check_alive(self) -> None:
        if self.agent.exit_status is not None:
            raise Violated(f"the agent ended by itself with {self.agent.exit_status}")

    async def _check_endpoints(self) -> None:
        """Whatever is broken, an agent that has answered once goes on answering."""
        if not self.agent.has_answered and not (await self.agent.get("/livez"))[0]:
            return
        for path in PATHS:
            status, body = await self.agent.get(path)
            if status not in ((200, 503) if path == "/readyz" else (200,)):
                raise Violated(f"{path} answered {status}: {body[:200]}")

    async def read_table(self) -> list[list[str]] | None:
        """The devices of each allocation; nothing before the agent has recovered them."""
        status, body = await self.agent.get("/readyz")
        if not status or "[+] gate allocations_recovered" not in body:
            return None
        status, body = await self.agent.get("/api/v1/allocations")
        return [one["devices"] for one in json.loads(body) if one["source"] != "claim"] if status else None

    async def _read_doors(self) -> tuple[Any, Any, Any] | None:
        """The agent's account of the other doors; nothing while it cannot be asked."""
        told = [await self.agent.get(f"/api/v1/{name}") for name in ("parts", "claims", "doors")]
        if any(status != OK for status, _ in told):
            return None
        parts, claims, doors = (json.loads(body) for _, body in told)
        return parts, claims, doors

    async def _find_faults(self) -> list[str]:
        """What of it is wrong; an agent that has just recovered its journal tells all of it at once."""
        if self.tenants is None or (account := await self._read_doors()) is None:
            return []
        return self.tenants.check_told(*account)

    async def _is_account_true(self) -> bool:
        """Whether it knows of all that there is, and of nothing else, and everything is there that belongs to it."""
        assert self.tenants is not None
        account = await self._read_doors()
        if (
            not self.tenants.are_slices_true()
            or account is None
            or self.tenants.list_left_over(*account[:2])
            or self.tenants.check_told(*account)
        ):
            return False
        wanted, there = await run_sync(self.tenants.count_daemons)
        return wanted == there and await run_sync(self.tenants.is_table_whole)

    async def _is_settled(self) -> bool:
        assert self.tenants is not None
        if not self.tenants.is_layout_true():
            for name in [name for name, devices in self.truth.held().items() if self._are_of_layout(devices)]:
                self.delete_pod(name)
        self.waits_for = await self.tenants.settle()
        return not self.waits_for

    def _are_of_layout(self, devices: Collection[str]) -> bool:
        return any((self.gpus.find_gpu(device) in CUT_BY_LABEL) for device in devices)

    async def check_health_told(self) -> None:
        """While things are broken, the kubelet is told so, and of nothing else.

        Not while a door or a layout is on its way: what there is to be offered then depends on how far it came. Nor
        while no container runtime can be asked: without its word the part of a pod that is gone keeps its GPU's door.

        Raises:
            Violated: it is not, after all patience.
        """
        is_open = self.tenants and (self.tenants.is_under_way() or not self.surroundings.has_runtime)
        if self.gpus.count_healthy() < GPUS and not is_open:
            await self.wait(self._is_offer_true, "telling the kubelet which GPUs are broken", WELL_SECONDS)

    async def calm(self) -> None:
        """Take every fault back, and see that all is well again, in time.

        Raises:
            Violated: it is not.
        """
        self.gpus.mend()
        self.empty_disk()
        await self.surroundings.start()
        ready = await self.wait(self._is_ready, "ready", READY_SECONDS, patience=self._patience)
        self.slowest["ready"] = max(self.slowest["ready"], ready)
        await self.settle()
        well = ready + await self.wait(self._is_offer_true, "offering every healthy device", WELL_SECONDS)
        well += await self.wait(self._is_table_true, "in agreement with the pods", WELL_SECONDS)
        well += await self.wait(self._is_node_told, "telling the API server the truth", WELL_SECONDS)
        if self.tenants is not None:
            await self.wait(self._is_account_true, "in agreement with whoever is behind the other doors", WELL_SECONDS)
        self.slowest["well"] = max(self.slowest["well"], well)
        await self._admit_probe()

    async def settle(self) -> None:
        """Have all end that was begun."""
        if self.tenants is not None:
            await self.wait(self._is_settled, "where all that was begun has ended", WELL_SECONDS)

    async def _admit_probe(self) -> None:
        """With nothing broken and a GPU free, a pod that asks for one runs, whatever kubelet and agent went through."""
        if self._count_free() == 0:
            return
        for _ in range(self._attempts):
            refused = self.refused
            await self.add_pod("probe", WHOLE, 1)
            if self.refused == refused:
                self.delete_pod("probe")
                return
            await anyio.sleep(PROBE_PAUSE_SECONDS)
        raise Violated(f"nothing is broken and a GPU is free, yet a pod was refused: {self.last_refusal}")

    def _count_free(self) -> int:
        """The whole GPUs that anybody could have: none that is on its way to another door."""
        devices = [device for held in self.truth.held().values() for device in held if device.startswith("GPU-")]
        gpus = [gpu for gpu in map(self.gpus.find_gpu, devices) if gpu is not None]
        held = [gpu for gpu in gpus if self.tenants is None or self.tenants.is_behind(gpu, "whole")]
        return self.count_devices().get(WHOLE, 0) - len(held)

    async def _is_ready(self) -> bool:
        return (await self.agent.get("/readyz"))[0] == 200

    def is_offer_true(self) -> bool:
        """Whether the kubelet would give out every device that works, and no other."""
        offered = {name: offer.allocatable for name, offer in self.kubelet.offers().items() if offer.allocatable}
        return offered == {name: count for name, count in self.count_devices().items() if count}

    def count_devices(self) -> dict[str, int]:
        """What there is to be offered of each resource."""
        return self.gpus.count_devices() if self.tenants is None else self.tenants.count_offers()

    async def _is_offer_true(self) -> bool:
        return self.is_offer_true()

    async def wait_offer_true(self, patience_seconds: float) -> None:
        """Until it is so, or for as long as that."""
        with anyio.move_on_after(patience_seconds):
            await self.kubelet.wait_until(self.is_offer_true)

    async def _is_table_true(self) -> bool:
        told = await self.read_table()
        return told is not None and not find_left_over(self.truth, told) and not find_missing(self.truth, told)

    async def _is_node_told(self) -> bool:
        return self.surroundings.is_node_told(GPUS)

    async def wait(
        self, is_so: Callable[[], Awaitable[bool]], what: str, limit_seconds: float, patience: float = 0.0
    ) -> float:
        patience = patience or (self._patience if self.tenants is None else max(self._patience, ROOMS_PATIENCE))
        before, began = self.agent.read_waits(), time.monotonic()
        with anyio.move_on_after(LOSE_PATIENCE_SECONDS) as waiting:
            while not await is_so():
                self._check_alive()
                await anyio.sleep(0.02)
        took = time.monotonic() - began
        stall = min(took, measure_stall(before, self.agent.read_waits()))
        self.longest_stall_seconds = max(self.longest_stall_seconds, stall)
        if not waiting.cancelled_caught and took - stall <= limit_seconds * patience:
            return took - stall
        paths = ("/readyz", "/api/v1/conditions", "/api/v1/allocations", *(ROOM_PATHS if self.tenants else ()))
        state = [await self.agent.get(path) for path in paths]
        state += [(0, self.waits_for), (0, str(self.tenants.holdings.all()) if self.tenants else "")]
        raise Violated(
            f"only after {took:.1f} s, {stall:.1f} of them the machine's, {what}: {state},"
            f" offered {dict(self.kubelet.offers())}, there is {self.count_devices()},"
            f" node {self.surroundings.api.labels()}, pods {dict(self.truth.held())}"
        )
