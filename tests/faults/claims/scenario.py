"""A claim of everything that is made for claims: made ready and put away by an agent that may die at each step of it.

What the agent answered stands on a descriptor outside its reach, as the kubelet's memory does. What becomes of it
afterwards is the next agent's matter: the kubelet asks again, or the pod has ended meanwhile, with or without a boot.
"""

import json
import os
from enum import StrEnum
from pathlib import Path
from typing import Final, NamedTuple

import anyio

from nodeagent.model.claims import DeviceAnswer
from nodeagent.model.gpu import ComputeMode
from tests.component.claims.harness import FakeApi
from tests.faults.claims.machine import Agent, Machine
from tests.faults.journal.scenario import Steps
from tests.support.claims import gpu_config, make_claim, make_config, make_result

UID: Final = "claim-1"
MIG_DEVICE: Final = "gpu-1-mig-1g10gb-19-2"
SHARE: Final = {"share_id": "s1", "consumed": {"memory": "20Gi", "cores": "30"}}
CLAIM: Final = make_claim(
    make_result("gpu-0", "daemon"),
    make_result(MIG_DEVICE, "part"),
    make_result("gpu-2", "share", **SHARE),
    make_result("gpu-3", "turns"),
    make_result("gpu-4", "whole"),
    configs=(
        make_config(gpu_config({"strategy": "MPS"}), "daemon"),
        make_config(gpu_config({"strategy": "TimeSlicing", "timeSlicingConfig": {"interval": "Long"}}), "turns"),
    ),
)
METADATA: Final = sorted(f"{UID}/{result.request}.json" for result in CLAIM.results)
TRIES, PAUSE_SECONDS = 200, 0.05
"""The kubelet asks again; here it has no patience to wait a minute and a half."""
LONG: Final = 3
"""As the driver counts time slices."""
LATE: Final = "was put away after its last pod"


class After(StrEnum):
    """What follows on the agent's death."""

    AGAIN = "asked for again"
    ENDED = "the pod has ended"
    BOOT_AGAIN = "booted, and asked for again"
    BOOT_ENDED = "booted, and the pod has ended"

    @property
    def is_boot(self) -> bool:
        return self in {After.BOOT_AGAIN, After.BOOT_ENDED}

    @property
    def is_again(self) -> bool:
        """Whether the pod is still there."""
        return self in {After.AGAIN, After.BOOT_AGAIN}


class Told(NamedTuple):
    """What the kubelet knows of a life that is over."""

    prepared: list[dict[str, object]] | None = None
    is_ending: bool = False
    """It has asked for the claim to be put away."""
    is_ended: bool = False
    """And was told that it is."""


def read_told(notes: Path) -> Told:
    """By what the life has answered."""
    answers = dict(line.partition(" ")[::2] for line in notes.read_text().splitlines())
    prepared = json.loads(answers["prepared"]) if "prepared" in answers else None
    return Told(prepared, is_ending="ending" in answers, is_ended="ended" in answers)


def make_api() -> FakeApi:
    """Who knows the claim, and no living pod beside those that it is reserved for."""
    api = FakeApi()
    api.put(CLAIM)
    return api


async def live(machine: Machine, notes: Path, steps: Steps | None) -> None:
    """A whole life of the claim; its steps are counted from the kubelet's first question on."""
    # Not one of the steps: whoever dies before an answer is told dies after the step before it.
    told = os.open(notes, os.O_WRONLY | os.O_APPEND | os.O_CREAT)
    async with Agent(machine, make_api()).at_work() as agent:
        if steps is not None:
            steps.install()
        answers = await prepare(agent)
        os.writev(told, [f"prepared {render(answers)}\n".encode()])
        os.writev(told, [b"ending\n"])
        await unprepare(agent)
        os.writev(told, [b"ended\n"])


async def prepare(agent: Agent) -> tuple[DeviceAnswer, ...]:
    """Ask until it is ready, as the kubelet does."""
    said: object = ""
    for _ in range(TRIES):
        said = (await agent.prepare())[UID]
        if not isinstance(said, str):
            return said
        if LATE in said:
            break
        await anyio.sleep(PAUSE_SECONDS)
    raise AssertionError(f"never ready: {said}")


async def unprepare(agent: Agent) -> None:
    said = ""
    for _ in range(TRIES):
        said = (await agent.unprepare())[UID]
        if not said:
            return
        await anyio.sleep(PAUSE_SECONDS)
    raise AssertionError(f"never put away: {said}")


def render(answers: tuple[DeviceAnswer, ...]) -> str:
    """What containers depend on: the devices, and the names by which runtimes find them."""
    return json.dumps([{"device": one.device, "names": list(one.cdi_names)} for one in answers])


async def follow(machine: Machine, told: Told, after: After) -> list[str]:
    """The next life; what is wrong in it, or with what it leaves."""
    faults: list[str] = []
    async with Agent(machine, make_api()).at_work() as agent:
        if after.is_again and not told.is_ended:
            faults += await _ask_again(agent, told)
        elif after.is_again:
            said = str((await agent.prepare())[UID])
            faults += [] if LATE in said else [f"ready after its end: {said}"]
        await unprepare(agent)
        faults += await find_left(agent)
    return faults


async def _ask_again(agent: Agent, told: Told) -> list[str]:
    try:
        answers = await prepare(agent)
    except AssertionError as error:
        # Its end was durable, and only the answer was lost.
        return [] if told.is_ending and LATE in str(error) else [str(error)]
    faults = await find_missing(agent)
    if told.prepared is not None and json.loads(render(answers)) != told.prepared:
        faults.append(f"other devices than it was told: {render(answers)}")
    return faults


async def find_missing(agent: Agent) -> list[str]:
    """What a claim that is ready does not have."""
    machine, gpus = agent.machine, agent.cards
    daemon, cut = (await gpus.read_inventory()).gpus[:2]
    faults = [] if len(machine.list_specs()) == 1 else [f"specifications: {machine.list_specs()}"]
    faults += [] if machine.list_replicas() == [UID] else [f"limits: {machine.list_replicas()}"]
    faults += [] if machine.list_metadata() == METADATA else [f"metadata: {machine.list_metadata()}"]
    made = [device.uuid for device in cut.mig_devices]
    known = [device.uuid for device in agent.prepared[UID].devices if device.is_made]
    faults += [] if len(made) == 1 and made == known else [f"MIG devices {made}, in the journal {known}"]
    mode = await gpus.compute_mode(daemon.uuid)
    faults += [] if mode is ComputeMode.EXCLUSIVE_PROCESS else [f"no daemon of MPS: {mode.name}"]
    number = gpus.read_time_slice((await gpus.read_inventory()).gpus[3].uuid)
    return faults + ([] if number == LONG else [f"time slice {number}"])


async def find_left(agent: Agent) -> list[str]:
    """What is left of a claim that was put away."""
    machine, gpus = agent.machine, agent.cards
    faults = [f"left behind: {name}" for name in machine.list_specs()]
    faults += [f"left behind: {name}" for name in (*machine.list_replicas(), *machine.list_metadata())]
    for gpu in (await gpus.read_inventory()).gpus:
        faults += [f"GPU {gpu.index} is still cut"] if gpu.mig_enabled or gpu.mig_devices else []
        mode = await gpus.compute_mode(gpu.uuid)
        number = gpus.read_time_slice(gpu.uuid)
        faults += [f"GPU {gpu.index} is left with time slice {number}"] if number else []
        faults += [] if mode is ComputeMode.DEFAULT else [f"GPU {gpu.index} is left in mode {mode.name}"]
    faults += [f"still in the journal: {uid}" for uid in agent.prepared]
    for owner in ("mig", "mig-partition", "mps"):
        faults += [f"a change is under way: {one}" for one in agent.journal.changes(owner) or ()]
    return faults
