"""What repairs of a node go through: the driver's program, the channel for a reboot, processes with GPUs open.

Owns the answers of these, the effects of a reset, and asks the truth about each reset at the moment in which it begins.
"""

import json
import os
import sys
import time
from collections import Counter, deque
from collections.abc import Collection, Mapping
from pathlib import Path
from typing import Any, Final

import anyio
from anyio.abc import SocketStream, TaskStatus

from nodeagent_sim.kubelet.kubelet import StandInKubelet
from tests.chaos.cluster_slots import DOMAIN, ClusterSlots
from tests.chaos.cluster_slots import NAMESPACE as SLOTS_NAMESPACE
from tests.chaos.hardware import GPUS, Gpus
from tests.chaos.repair_truth import ACTIONS, WRONG, Opened, RepairTruth
from tests.chaos.surroundings import Surroundings
from tests.chaos.truth import Truth, Violated
from tests.fakes.apiserver import NODE
from tests.fakes.cuda.driver import FakeDriver
from tests.fakes.nvidia_smi.answers import ANSWERS, PEERS

NAMESPACE: Final = "chaos"
FILES: Final[Mapping[int, str]] = {3: "/dev/null", 5: "/dev/zero", 7: "/dev/full"}
"""By the minor number, which is the GPU's: files that stand in for GPUs' on a machine that makes no device files."""
NOTHING_DONE: Final = frozenset({"in-use", "incomplete", "permission"})
"""Answers that no guard counts."""
WEEK_SECONDS: Final = 9 * 86400.0
"""So much longer than the guard's, that hours by which a clock is set do not matter."""
ROOM_BYTES: Final = 4 << 20
"""Of each GPU: little is soon proven."""
BOOT_SECONDS: Final = 1.0
"""A program that asks so soon after a boot was begun before it: a new agent has yet to look at its GPUs."""
HANG_SECONDS: Final = 8.0
"""For longer than the agent waits for a reset."""
LIMIT_MILLIWATTS: Final = 600_000
"""What somebody has set, and a reset takes back."""
PROGRAM: Final = """#!{python} -IS
import socket, sys
with socket.socket(socket.AF_UNIX) as desk:
    desk.connect({desk!r})
    desk.sendall("\\0".join([{name!r}, *sys.argv[1:]]).encode())
    desk.shutdown(socket.SHUT_WR)
    said = b"".join(iter(lambda: desk.recv(4096), b"")).decode()
code, _, text = said.partition(" ")
sys.stdout.write(text)
sys.exit(int(code or 1))
"""
XID_EVENT, FIRMWARE_SILENT = 8, 119


class Workshop:
    """Of one node, below one directory."""

    def __init__(
        self, directory: Path, gpus: Gpus, pods: Truth, kubelet: StandInKubelet, surroundings: Surroundings
    ) -> None:
        self._gpus, self._pods, self._kubelet, self._around = gpus, pods, kubelet, surroundings
        self.truth = RepairTruth()
        self._programs, self._desk, self._proc = (directory / name for name in ("tools", "desk", "proc"))
        self._boots = 0
        self.is_reboot_due = False
        self.answers: deque[str] = deque()
        """To the next resets; without one a reset is done."""
        self.resetting: set[int] = set()
        self.began = anyio.Event()
        """Set when the next reset begins."""
        self.did: Counter[str] = Counter()
        self.died: dict[str, int] = {}
        """Pods that died of a fault, with the week."""
        self.blamed: set[str] = set()
        """Those of whose fault the agent has told."""
        self._found: set[int] = set()
        self.slots = ClusterSlots(surroundings.api)
        self._wrong = directory / "wrong"
        uuids = tuple(gpus.fake.gpu(gpu).uuid.decode() for gpu in range(GPUS))
        self._cuda = FakeDriver(
            directory,
            memory=(ROOM_BYTES,) * GPUS,
            proves=True,
            uuids=uuids,
            wrong={"memory": 7},
            faulty_file=self._wrong,
        )
        self._make_programs()
        self._make_processes()
        self.boot()

    def _make_programs(self) -> None:
        self._programs.mkdir()
        for name in ("nvidia-smi", "request-reboot"):
            program = self._programs / name
            program.write_text(PROGRAM.format(python=sys.executable, desk=str(self._desk), name=name))
            program.chmod(0o755)

    def _make_processes(self) -> None:
        (self._proc / "1" / "fd").mkdir(parents=True)
        (self._proc / "1" / "stat").write_text("1 (init) S 0 1 1 0")
        (self._proc / "self").symlink_to("2")

    @property
    def environment(self) -> dict[str, str]:
        return {"PATH": f"{self._programs}:{os.environ['PATH']}"}

    @property
    def worker_environment(self) -> dict[str, str]:
        """Of the children that call the driver."""
        return self._cuda.environ()

    def plan_settings(self, speed: int) -> Mapping[str, object]:
        """For an agent whose clocks run so fast; the programs take the world's seconds."""
        return {
            "repairs.mode": "act",
            "repairs.up_to": "reboot",
            "repairs.reset_seconds": 4 * speed,
            "repairs.reboot_by": "command",
            "repairs.reboot_command": json.dumps(["request-reboot"]),
            "repairs.slots.domains": json.dumps([{"label": DOMAIN.key, "slots": DOMAIN.slots}]),
            "repairs.slots.namespace": SLOTS_NAMESPACE,
            "repairs.drain.wait_seconds": 0.5,
            "repairs.drain.deadline_seconds": 6 * speed,
            "repairs.drain.after_deadline": "delete_where_dead",
            "node.proc_dir": self._proc,
            "signals.brake": "false",
            "signals.receipts": "true",
            "signals.pod_condition": "true",
            "signals.nvsentinel.enabled": "true",
            "signals.nvsentinel.socket": self._desk.with_name("nvsentinel"),
            "proof.idle": "quick",
            "proof.free_seconds": 1,
            "proof.spread_seconds": 0,
            "claims.metadata_files": "true",
        }

    # The hardware.

    def boot(self) -> None:
        """The node starts: what was broken and can be mended is mended, and services set what they always set."""
        self._boots += 1
        self._booted_at = time.monotonic()
        self.is_reboot_due = False
        place = self._proc / "sys" / "kernel" / "random"
        place.mkdir(parents=True, exist_ok=True)
        (place / "boot_id").write_text(f"boot-{self._boots}\n")
        for pid in list(self.truth.opened):
            self.close_file(pid)
        self.truth.reboot()
        for gpu in range(GPUS):
            self._gpus.restore(gpu)
            state = self._gpus.fake.gpu(gpu)
            state.recovery_action, state.persistence_mode = 0, 1
            state.power_limit_milliwatts = LIMIT_MILLIWATTS
        self.show_needs()

    def break_gpu(self, gpu: int, need: str) -> None:
        """A GPU needs a repair from now on; the driver says so at each poll, and of a silent firmware at once."""
        if self.truth.needs.setdefault(gpu, need) == WRONG:
            self.truth.wrong.add(gpu)
        self.show_needs()
        if need == "reset":
            self._gpus.fake.push_event(gpu, XID_EVENT, FIRMWARE_SILENT)

    def show_needs(self) -> None:
        """The driver recommends what is needed, and computes as its GPUs do."""
        self._wrong.write_text("".join(str(int(self.truth.needs.get(gpu) == WRONG)) for gpu in range(GPUS)))
        for gpu, need in self.truth.needs.items():
            self._gpus.fake.gpu(gpu).recovery_action = ACTIONS[need]

    def list_changed(self) -> list[str]:
        """Settings that are not as they were before all resets."""
        states = [self._gpus.fake.gpu(gpu) for gpu in range(GPUS)]
        return [
            f"GPU {gpu}: persistence mode {one.persistence_mode}, limit {one.power_limit_milliwatts} mW"
            for gpu, one in enumerate(states)
            if (one.persistence_mode, one.power_limit_milliwatts) != (1, LIMIT_MILLIWATTS)
        ]

    def note_found(self, sessions: Collection[Mapping[str, Any]]) -> None:
        """Count the sessions that a failed proof has opened."""
        found = {one["number"] for one in sessions if any("proof" in each["key"] for each in one["evidence"])}
        self.did["sessions by a failed proof"] += len(found - self._found)
        self._found |= found

    # Pods and processes.

    def note_pod(self, name: str, devices: frozenset[str]) -> None:
        """The API server has it, so that it can be asked to leave."""
        uid = next(pod.uid for pod in self._kubelet.pods if pod.name == name)
        metadata = {"namespace": NAMESPACE, "name": name, "uid": uid, "labels": {"app": name}}
        self._around.api.pods[name] = {
            "metadata": metadata,
            "spec": {"nodeName": NODE, "terminationGracePeriodSeconds": int(len(devices) > 1)},
            "status": {"phase": "Running"},
        }
        self._around.api.store.note("pods", name, None)

    def drop_pod(self, name: str) -> None:
        if name in self._around.api.pods:
            self._around.api.store.drop("pods", name)
        self._around.api.store.budgets.discard(name)

    def list_leaving(self) -> list[str]:
        """Pods that were evicted or deleted, and have not ended."""
        known = self._around.api.pods
        return [
            name
            for name in self._pods.pods
            if name not in known or known[name]["metadata"].get("deletionTimestamp") is not None
        ]

    def protect(self, name: str) -> None:
        """A disruption budget has it stay."""
        self._around.api.store.budgets.add(name)

    def forget_dead(self, week: int) -> None:
        """Pods that died before it are not in the journal for much longer."""
        self.died = {pod: since for pod, since in self.died.items() if since >= week}
        self.blamed &= set(self.died)

    def has_process(self, pid: int) -> bool:
        """Whether there is one of this number, or was."""
        return (self._proc / str(pid)).exists()

    def open_file(self, pid: int, gpu: int) -> None:
        place = self._proc / str(pid)
        (place / "fd").mkdir(parents=True)
        (place / "stat").write_text(f"{pid} (monitor) S 1 1 1 0")
        (place / "comm").write_text("monitor\n")
        (place / "cgroup").write_text("0::/system.slice/monitor.service\n")
        (place / "fd" / "4").symlink_to(FILES[gpu])
        self.truth.opened[pid] = Opened(gpu, time.monotonic())

    def close_file(self, pid: int) -> None:
        del self.truth.opened[pid]
        (self._proc / str(pid) / "fd" / "4").unlink()

    # The programs.

    async def serve(self, *, task_status: TaskStatus[None]) -> None:
        """Answer the programs, until cancelled."""
        listener = await anyio.create_unix_listener(self._desk)
        async with listener:
            task_status.started()
            await listener.serve(self._answer)

    async def _answer(self, stream: SocketStream) -> None:
        async with stream:
            try:
                words = [part async for part in stream]
                code, said = await self._do(b"".join(words).decode().split("\0"))
                await stream.send(f"{code} {said}".encode())
            except (anyio.BrokenResourceError, anyio.EndOfStream):
                self.did["programs killed"] += 1

    async def _do(self, words: list[str]) -> tuple[int, str]:
        if time.monotonic() - self._booted_at < BOOT_SECONDS:
            self.did["programs that a reboot ended"] += 1
            return 1, ""
        if words[0] == "request-reboot":
            self.did["reboots requested"] += 1
            self.is_reboot_due = True
            return 0, ""
        gpus = self._find_gpus(words[words.index("-i") + 1])
        if "--gpu-reset" in words:
            return await self._reset(gpus, "bus" if "bus" in words else "reset")
        for gpu in gpus:
            state = self._gpus.fake.gpu(gpu)
            if "-pm" in words:
                state.persistence_mode = int(words[words.index("-pm") + 1])
            if "-pl" in words:
                state.power_limit_milliwatts = round(float(words[words.index("-pl") + 1]) * 1000)
        return 0, ""

    def _find_gpus(self, told: str) -> list[int]:
        wanted = {address.lower().removeprefix("0000") for address in told.split(",")}
        seats = self._gpus.fake.profile.seats
        found = [gpu for gpu, seat in enumerate(seats) if seat.address.lower().removeprefix("0000") in wanted]
        if len(found) != len(wanted):
            raise Violated(f"a reset of {told}, and there are {[seat.address for seat in seats]}")
        return found

    async def _reset(self, gpus: list[int], kind: str) -> tuple[int, str]:
        broken = [gpu for gpu in gpus if self._gpus.is_broken(gpu)]
        devices = {gpu: self._gpus.list_names(gpu) for gpu in gpus}
        pods = {pod for pod, held in self._pods.held().items() if any(held & names for names in devices.values())}
        self.truth.check_reset(gpus, broken, pods, time.monotonic())
        self.slots.check_reset(time.monotonic())
        answer = self._choose_answer(gpus)
        if answer not in NOTHING_DONE:
            self.truth.count(gpus)
        self.did[f"resets: {answer}"] += 1
        self.resetting |= set(gpus)
        self.began.set()
        self.began = anyio.Event()
        boot = self._boots
        try:
            await anyio.sleep(HANG_SECONDS if answer == "hang" else 0.2 + 0.2 * (self.truth.resets % 5))
            # A reboot ends the program with all others.
            if answer in ("done", "unmended") and boot == self._boots:
                self._take_effect(gpus, kind if answer == "done" else "")
        finally:
            self.resetting -= set(gpus)
        told = ANSWERS["done" if answer == "unmended" else answer]
        return told.code, told.said

    def _choose_answer(self, gpus: list[int]) -> str:
        if self.truth.find_users(gpus):
            return "in-use"
        if any(self._gpus.fake.gpu(gpu).lost for gpu in gpus):
            return "off-the-bus"
        answer = self.answers.popleft() if self.answers else "done"
        if answer != "incomplete":
            return answer
        if set(PEERS) <= set(gpus):
            return "done"
        self.truth.demand(PEERS)
        return answer

    def _take_effect(self, gpus: list[int], kind: str) -> None:
        """What the GPUs have forgotten, and whether they are well again."""
        for gpu in gpus:
            self._gpus.reset(gpu)
            state = self._gpus.fake.gpu(gpu)
            state.power_limit_milliwatts = state.power_default_milliwatts
        if kind:
            self.truth.mend(gpus, kind)
        self.show_needs()
