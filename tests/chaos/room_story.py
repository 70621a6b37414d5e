"""Steps behind the other doors: parts, claims, layouts, doors that are switched, daemons and tables that are lost.

As those of `story`: each draws the same number of times, whatever the node then allows.
"""

import signal
from random import Random

import anyio

from tests.chaos import story
from tests.chaos.hardware import GPUS
from tests.chaos.machine import Machine
from tests.chaos.rooms import CAMERA, LAYOUTS
from tests.chaos.story import Step, list_steps
from tests.chaos.tenants import Tenants

MOST_PARTS, MOST_CLAIMS = 6, 4
ASTRAY = 0.2
SWITCHED = (3, 4, 5, 6, 7)
"""Whose doors people change; the others are cut."""
DOORS = ("whole", "fractions", "claims")


def find_tenants(machine: Machine) -> Tenants:
    assert machine.tenants is not None
    return machine.tenants


async def add_part(machine: Machine, random: Random) -> str:
    """A pod comes for a part of a GPU; where there are enough, one goes instead."""
    tenants, number = find_tenants(machine), random.getrandbits(32)
    cores, blocks = random.choice((5, 10, 30, 60, 100)), random.choice((4, 16, 64, 200))
    if len(tenants.pods) >= MOST_PARTS:
        return await delete_part(machine, random)
    name = f"part-{number:08x}"
    return f"{name} of {cores} cores, {blocks} blocks: {await tenants.add_part(name, cores, blocks)}"


async def delete_part(machine: Machine, random: Random) -> str:
    tenants, rank = find_tenants(machine), random.random()
    if not tenants.pods:
        return "no pod with a part"
    name = tenants.pods[int(rank * len(tenants.pods))]
    tenants.delete_part(name)
    return f"{name} deleted"


async def start_part_again(machine: Machine, random: Random) -> str:
    """The container of one of them ends and is started again: it has what it had."""
    tenants, rank = find_tenants(machine), random.random()
    if not tenants.pods:
        return "no pod with a part"
    name = tenants.pods[int(rank * len(tenants.pods))]
    return f"{name} started again: {await tenants.start_again(name)}"


async def kill_in_part(machine: Machine, random: Random) -> str:
    """The agent is killed while a pod with a part comes."""
    pause = random.random() * 0.02
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(add_part, machine, random)
        await anyio.sleep(pause)
        tasks.start_soon(machine.end_agent, signal.SIGKILL)
    return f"killed {pause * 1000:.1f} ms into a part"


async def prepare_claim(machine: Machine, random: Random) -> str:
    """A claim: all of a GPU, alone or by MPS, or a share; one time in five of any GPU, however it is given."""
    tenants, number = find_tenants(machine), random.getrandbits(32)
    rank, is_astray = random.random(), random.random() < ASTRAY
    behind = [gpu for gpu, door in tenants.doors.items() if door == "claims"]
    gpus = range(GPUS) if is_astray or not behind else behind
    gpu = gpus[int(rank * len(gpus))]
    share, is_mps = random.choice((None, None, (20, 10), (50, 40), (80, 60))), random.random() < 0.5
    if len(tenants.claims) >= MOST_CLAIMS:
        return await unprepare_claim(machine, random)
    name = f"claim-{number:08x}"
    return f"{name} of GPU {gpu}, {share or 'all'}: {await tenants.prepare(name, gpu, share=share, is_mps=is_mps)}"


async def unprepare_claim(machine: Machine, random: Random) -> str:
    """The last pod of one has ended."""
    tenants, rank = find_tenants(machine), random.random()
    names = list(tenants.claims)
    if not names:
        return "no claim"
    name = names[int(rank * len(names))]
    return f"{name}: {await tenants.unprepare(name)}"


async def prepare_again(machine: Machine, random: Random) -> str:
    """The kubelet asks twice, or late."""
    tenants, rank, is_late = find_tenants(machine), random.random(), random.random() < 0.5
    names = tenants.ended_claims() if is_late else tenants.holdings_of_claims()
    if not names:
        return "no claim to ask for again"
    name = names[int(rank * len(names))]
    told = await (tenants.prepare_late(name) if is_late else tenants.prepare_again(name))
    return f"{name} {'late' if is_late else 'again'}: {told}"


async def kill_in_claim(machine: Machine, random: Random) -> str:
    """The agent is killed while it makes a claim ready."""
    pause = random.random() * 0.2
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(prepare_claim, machine, random)
        await anyio.sleep(pause)
        tasks.start_soon(machine.end_agent, signal.SIGKILL)
    return f"killed {pause * 1000:.0f} ms into a claim"


async def ask_layout(machine: Machine, random: Random) -> str:
    """The node is labelled with another layout, or its label goes."""
    layout, pause = random.choice((*LAYOUTS, "")), random.random() * 2
    if not layout and not find_tenants(machine).is_layout_true():
        return "a layout is not withdrawn half way"
    find_tenants(machine).set_layout(layout)
    await anyio.sleep(pause)
    return f"layout {layout or 'withdrawn'}"


async def kill_in_layout(machine: Machine, random: Random) -> str:
    """The agent is killed while GPUs are cut."""
    layout, pause = random.choice(tuple(LAYOUTS)), random.random()
    find_tenants(machine).set_layout(layout)
    await anyio.sleep(pause)
    await machine.end_agent(signal.SIGKILL)
    return f"killed {pause:.2f} s into layout {layout}"


async def switch_door(machine: Machine, random: Random) -> str:
    gpu, door = random.choice(SWITCHED), random.choice(DOORS)
    return f"door {door} for GPU {gpu}: {await find_tenants(machine).set_allocation_mode(gpu, door)}"


async def kill_daemon(machine: Machine, _random: Random) -> str:
    assert machine.rooms is not None
    if not machine.rooms.kill_daemon():
        return "no MPS daemon"
    find_tenants(machine).did["daemons killed"] += 1
    return "an MPS daemon killed"


async def damage_table(machine: Machine, random: Random) -> str:
    """What the runtime shim looks things up in is cut short, or gone."""
    assert machine.rooms is not None
    rank, is_gone = random.random(), random.random() < 0.5
    table = machine.rooms.table
    if not table.exists():
        return "no table"
    find_tenants(machine).did["tables damaged"] += 1
    content = table.read_bytes()
    table.unlink() if is_gone else table.write_bytes(content[: int(rank * len(content))])
    return "the shim's table is gone" if is_gone else "the shim's table is cut short"


async def add_camera(machine: Machine, random: Random) -> str:
    """A pod comes for another vendor's device."""
    number = random.getrandbits(32)
    await machine.add_pod(f"camera-{number:08x}", CAMERA, 1)
    return f"pod {number:08x} of a camera"


def list_room_steps(freeze_seconds: float) -> dict[Step, int]:
    """All of them, and those of a node where GPUs are given whole.

    Without API server and without room on the disk nobody new comes by these doors: less often, then.
    """
    return {
        **list_steps(freeze_seconds),
        story.lose_api: 1,
        story.fill_disk: 1,
        add_part: 20,
        delete_part: 12,
        start_part_again: 3,
        kill_in_part: 3,
        prepare_claim: 20,
        unprepare_claim: 12,
        prepare_again: 4,
        kill_in_claim: 3,
        ask_layout: 3,
        kill_in_layout: 2,
        switch_door: 4,
        kill_daemon: 2,
        damage_table: 2,
        add_camera: 5,
    }
