"""Steps on a node whose agent repairs GPUs: faults, refusals, holders, kills in the middle, weeks that pass.

As those of `story`: each draws the same number of times, whatever the node then allows.
"""

import signal
from random import Random

import anyio

from tests.chaos import story
from tests.chaos.cluster_slots import DOMAIN
from tests.chaos.hardware import GPUS
from tests.chaos.machine import Machine
from tests.chaos.repair_truth import ACTIONS, WRONG
from tests.chaos.repaired_machine import RepairedMachine
from tests.chaos.story import Step, list_steps
from tests.chaos.workshop import FILES, FIRMWARE_SILENT, XID_EVENT

ANSWERS = (
    "hang",
    "unmended",
    "unmended",
    "incomplete",
    "in-use",
    "in-use-process",
    "unsupported",
    "not-supported",
    "unstable",
    "strange",
    "permission",
    "power",
)
"""Of the driver's program, beside success."""
NEEDS = ("reset", "reset", "reset", "drain", "drain", "bus", "reboot")
FEWEST_PID, MOST_PID = 1000, 100000
RESET_SECONDS = 10.0
"""How long a step waits for a reset to begin."""
WEEKS_KEPT = 2
"""The journal keeps receipts for a month."""


def find_workshop(machine: Machine) -> RepairedMachine:
    assert isinstance(machine, RepairedMachine)
    return machine


async def break_gpu(machine: Machine, random: Random) -> str:
    """A GPU needs a repair from now on; few do at a time."""
    node, gpu, need = find_workshop(machine), random.randrange(GPUS), random.choice(NEEDS)
    assert need in ACTIONS
    if len(node.workshop.truth.needs) >= GPUS // 2:
        return "enough GPUs are broken"
    node.workshop.break_gpu(gpu, need)
    return f"GPU {gpu} needs {node.workshop.truth.needs[gpu]}"


async def spoil_gpu(machine: Machine, random: Random) -> str:
    """A GPU computes wrongly from now on, and says nothing of it."""
    node, gpu = find_workshop(machine), random.randrange(GPUS)
    if len(node.workshop.truth.needs) >= GPUS // 2:
        return "enough GPUs are broken"
    node.workshop.break_gpu(gpu, WRONG)
    return f"GPU {gpu} {node.workshop.truth.needs[gpu]}"


async def take_slot(machine: Machine, random: Random) -> str:
    """Another node is repaired, and may vanish meanwhile."""
    slots, number, is_living = find_workshop(machine).slots, random.randrange(DOMAIN.slots), random.random() < 0.5
    node = f"node-{random.randrange(2, 99)}"
    if not slots.take(number, node, is_living=is_living):
        return f"slot {number} is taken"
    return f"{node} that {'lives' if is_living else 'vanishes'} takes slot {number}"


async def leave_slots(machine: Machine, random: Random) -> str:
    return f"other nodes leave {find_workshop(machine).slots.leave()} slots"


async def suspend_repairs(machine: Machine, random: Random) -> str:
    """A person stops all repairs, or lets them go on."""
    slots, is_stopping = find_workshop(machine).slots, random.random() < 0.5
    if not is_stopping:
        slots.resume()
        return "a person lets repairs go on"
    slots.suspend()
    return "a person stops all repairs"


async def answer_reset(machine: Machine, random: Random) -> str:
    """The next reset fails in one of the ways that there are."""
    answer = random.choice(ANSWERS)
    find_workshop(machine).workshop.answers.append(answer)
    return f"a reset will end as {answer}"


async def open_file(machine: Machine, random: Random) -> str:
    """A process of the host opens a GPU's device file."""
    workshop, gpu, pid = (
        find_workshop(machine).workshop,
        random.choice(tuple(FILES)),
        random.randrange(FEWEST_PID, MOST_PID),
    )
    if workshop.has_process(pid):
        return "a process of that number was there"
    workshop.open_file(pid, gpu)
    return f"process {pid} opens GPU {gpu}"


async def close_file(machine: Machine, random: Random) -> str:
    workshop, rank = find_workshop(machine).workshop, random.random()
    pids = list(workshop.truth.opened)
    if not pids:
        return "no process has a GPU open"
    pid = pids[int(rank * len(pids))]
    workshop.close_file(pid)
    return f"process {pid} closes its GPU"


async def kill_in_reset(machine: Machine, random: Random) -> str:
    """The agent is killed while a reset runs, which goes on."""
    workshop, pause, needs_one = find_workshop(machine).workshop, random.random() * 1.2, random.randrange(GPUS)
    if not workshop.truth.needs:
        workshop.break_gpu(needs_one, "reset")
    with anyio.move_on_after(RESET_SECONDS) as waiting:
        await workshop.began.wait()
    await anyio.sleep(pause)
    await machine.end_agent(signal.SIGKILL)
    return f"killed {pause:.2f} s into {'nothing' if waiting.cancelled_caught else 'a reset'}"


async def kill_twice(machine: Machine, random: Random) -> str:
    """The next agent is killed too, soon after its start."""
    pause = random.random() * 3
    told = await kill_in_reset(machine, random)
    await anyio.sleep(pause)
    await machine.end_agent(signal.SIGKILL)
    return f"{told}, and again after {pause:.2f} s"


async def reboot_node(machine: Machine, random: Random) -> str:
    """It was asked for, or one time in four somebody does it all the same."""
    node, is_unasked = find_workshop(machine), random.random() < 0.25
    if not node.workshop.is_reboot_due and not is_unasked:
        return "nobody asked for a reboot"
    await node.reboot()
    return f"rebooted{' by somebody' if is_unasked else ''}"


async def pass_week(machine: Machine, random: Random) -> str:
    """The guard's window is over, what the journal keeps of sessions, and the time of a slot."""
    node, hours = find_workshop(machine), random.uniform(-12, 12)
    truth = node.workshop.truth
    if node.workshop.resetting or node.workshop.list_changed() or node.slots.list_own():
        return "no week passes within a repair"
    truth.week += 1
    node.workshop.forget_dead(truth.week - WEEKS_KEPT)
    node.set_clock(hours * story.HOUR_SECONDS)
    return f"week {truth.week}"


async def protect_pod(machine: Machine, random: Random) -> str:
    """A disruption budget has a pod stay."""
    node, rank = find_workshop(machine), random.random()
    pods = node.truth.pods
    if not pods:
        return "no pod to protect"
    name = pods[int(rank * len(pods))]
    node.workshop.protect(name)
    return f"a budget keeps {name}"


async def die_of_fault(machine: Machine, random: Random) -> str:
    """The GPU of a pod falls silent, and the pod ends; what the agent then tells of it is never forgotten."""
    node, rank, pause = find_workshop(machine), random.random(), random.random()
    pods = node.truth.pods
    if not pods:
        return "no pod to die"
    name = pods[int(rank * len(pods))]
    gpus = [gpu for gpu in map(node.gpus.find_gpu, node.truth.held()[name]) if gpu is not None]
    if not gpus or len(node.workshop.truth.needs) >= GPUS // 2:
        return f"{name} lives"
    node.workshop.break_gpu(gpus[0], "reset")
    node.gpus.fake.push_event(gpus[0], XID_EVENT, FIRMWARE_SILENT)
    await anyio.sleep(pause)
    if name in node.truth.pods:
        machine.delete_pod(name)
    node.workshop.died[name] = node.workshop.truth.week
    return f"{name} died of XID {FIRMWARE_SILENT}"


def list_repair_steps(freeze_seconds: float) -> dict[Step, int]:
    return {
        **list_steps(freeze_seconds),
        story.wait: 16,
        break_gpu: 14,
        spoil_gpu: 5,
        take_slot: 5,
        leave_slots: 5,
        suspend_repairs: 4,
        answer_reset: 10,
        open_file: 6,
        close_file: 5,
        kill_in_reset: 5,
        kill_twice: 3,
        reboot_node: 3,
        pass_week: 3,
        protect_pod: 4,
        die_of_fault: 6,
    }
