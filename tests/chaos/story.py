"""The steps of a story, and how likely each is.

Each draws what it needs from the chance that it is given, always the same number of times, and then makes of it what
the node allows: a story told again goes the same way.
"""

import signal
from collections.abc import Awaitable, Callable
from random import Random

import anyio

from tests.chaos.hardware import GPUS, LAYOUTS, WHOLE
from tests.chaos.machine import Machine

CALM_EVERY = 20
"""Steps between two moments at which everything is taken back and all must be well."""
MOST_PODS = 5
MIG = "nvidia.com/mig-"
CUT_BY_HAND = 2
"""Where the agent cuts others."""
APPLICATION_XID = 31
XID_EVENT = 8
HOUR_SECONDS = 3600.0
LONG_FREEZES = 0.05
"""Share of the freezes that last as long as the command says."""
Step = Callable[[Machine, Random], Awaitable[str]]


async def add_pod(machine: Machine, random: Random) -> str:
    """A pod comes, for whole GPUs or for a MIG device; where there are enough, one goes instead."""
    number, size, rank = random.getrandbits(32), random.choice((1, 1, 1, 2, 4)), random.random()
    if len(machine.truth.pods) >= MOST_PODS:
        return await delete_pod(machine, random)
    shares = sorted(name for name in machine.kubelet.offers() if name.startswith(MIG))
    # Seven times in ten a whole GPU, else one of the kinds that there are.
    place = int((rank - 0.7) / 0.3 * len(shares)) if rank >= 0.7 and shares else None
    resource, size = (WHOLE, size) if place is None else (shares[place], 1)
    await machine.add_pod(f"pod-{number:08x}", resource, size)
    return f"pod {number:08x} of {size} {resource}"


async def delete_pod(machine: Machine, random: Random) -> str:
    rank, pods = random.random(), machine.truth.pods
    if not pods:
        return "no pod to delete"
    name = pods[int(rank * len(pods))]
    machine.delete_pod(name)
    return f"{name} deleted"


async def kill_agent(machine: Machine, random: Random) -> str:
    """Between two pods, or in the middle of one."""
    pause = random.random() * 0.01
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(add_pod, machine, random)
        await anyio.sleep(pause)
        tasks.start_soon(machine.end_agent, signal.SIGKILL)
    return f"killed {pause * 1000:.1f} ms into a pod"


async def restart_agent(machine: Machine, _random: Random) -> str:
    await machine.end_agent(signal.SIGTERM)
    return "restarted"


async def kill_worker(machine: Machine, _random: Random) -> str:
    """The process beside the agent that calls NVML."""
    machine.kill_worker()
    return "GPU worker killed"


async def reload_agent(machine: Machine, random: Random) -> str:
    """A change that holds; one time in three, a file that is wrong comes first.

    A process that does not listen to signals yet would be ended by this one.
    """
    polls, is_wrong = random.randrange(1, 4), random.random() < 1 / 3
    if not machine.agent.has_answered:
        return "no reload of an agent that only starts"
    if is_wrong:
        machine.agent.configure("health: {clean_pols: 1}\ninventory: [\n")
        machine.agent.send(signal.SIGHUP)
        await anyio.sleep(0.1)
    # Right again in any case: an agent that starts with a file that is wrong refuses to.
    machine.agent.configure({"health": {"clean_polls": polls}})
    machine.agent.send(signal.SIGHUP)
    return f"reload{', after a wrong file' if is_wrong else ''}, {polls} clean polls"


def freeze_agent(long_seconds: float) -> Step:
    """The process stands still while a pod waits for it; once in a while for long."""

    async def freeze(machine: Machine, random: Random) -> str:
        short, is_long = random.random(), random.random() < LONG_FREEZES
        pause = long_seconds if is_long else short
        machine.agent.send(signal.SIGSTOP)
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(add_pod, machine, random)
            await anyio.sleep(pause)
            machine.agent.send(signal.SIGCONT)
        return f"stood still for {pause:.2f} s"

    return freeze


async def step_clock(machine: Machine, random: Random) -> str:
    """The wall clock is set, forward or back, by up to hours; the clock that only rises goes on."""
    hours = random.uniform(-12, 12)
    machine.set_clock(hours * HOUR_SECONDS)
    return f"the clock is {hours:+.1f} h off"


async def restart_kubelet(machine: Machine, _random: Random) -> str:
    """It keeps its checkpoint."""
    await machine.kubelet.restart()
    return "kubelet restarted"


async def forget_kubelet(machine: Machine, _random: Random) -> str:
    """It loses its checkpoint while pods go on running."""
    await machine.kubelet.forget()
    return "kubelet forgot everything"


async def drop_plugin(machine: Machine, _random: Random) -> str:
    machine.kubelet.drop_plugin(WHOLE)
    return "kubelet hung up"


async def lose_api(machine: Machine, _random: Random) -> str:
    await machine.surroundings.stop_api()
    return "API server away"


async def find_api(machine: Machine, _random: Random) -> str:
    await machine.surroundings.start_api()
    return "API server there"


async def confuse_api(machine: Machine, random: Random) -> str:
    """It refuses the next requests, or lets one hang."""
    status, times = random.choice((401, 403, 409, 429, 500, 503, 0)), random.randrange(1, 4)
    if status:
        machine.surroundings.api.answer(status, times=times)
    else:
        machine.surroundings.api.hang()
    return f"API server will answer {status or 'never'}"


async def lose_runtime(machine: Machine, _random: Random) -> str:
    await machine.surroundings.stop_runtime()
    return "container runtime away"


async def find_runtime(machine: Machine, _random: Random) -> str:
    await machine.surroundings.start_runtime()
    return "container runtime there"


async def restart_runtime(machine: Machine, _random: Random) -> str:
    await machine.surroundings.stop_runtime()
    await machine.surroundings.start_runtime()
    return "container runtime restarted"


async def lose_gpu(machine: Machine, random: Random) -> str:
    gpu = random.randrange(GPUS)
    machine.gpus.lose(gpu)
    return f"GPU {gpu} lost"


async def restore_gpu(machine: Machine, random: Random) -> str:
    gpu = random.randrange(GPUS)
    machine.gpus.restore(gpu)
    return f"GPU {gpu} there"


async def hang_gpu(machine: Machine, random: Random) -> str:
    """Every call on it blocks, deaf to signals."""
    gpu = random.randrange(GPUS)
    machine.gpus.hang(gpu)
    return f"GPU {gpu} hangs"


async def unhang(machine: Machine, _random: Random) -> str:
    machine.gpus.unhang()
    return "no call hangs"


async def tell_xid(machine: Machine, random: Random) -> str:
    """An application faults, which says nothing about the GPU."""
    gpu = random.randrange(GPUS)
    machine.gpus.fake.push_event(gpu, XID_EVENT, APPLICATION_XID)
    return f"XID {APPLICATION_XID} on GPU {gpu}"


async def cut_gpu(machine: Machine, random: Random) -> str:
    """A GPU that nobody uses gets another MIG layout, or none.

    Nobody cuts a GPU that is broken, and nobody who has cut one sends pods before the kubelet knows.
    """
    gpu, layout = random.randrange(GPUS), random.choice((*LAYOUTS, (), ()))
    if machine.tenants is not None:
        gpu = CUT_BY_HAND
    if machine.gpus.is_broken(gpu) or machine.is_used(gpu):
        return f"GPU {gpu} cannot be cut"
    machine.gpus.cut(gpu, layout)
    await machine.wait_offer_true(3)
    return f"GPU {gpu} cut into {', '.join(layout) or 'nothing'}"


async def fill_disk(machine: Machine, _random: Random) -> str:
    machine.fill_disk()
    return "disk full"


async def empty_disk(machine: Machine, _random: Random) -> str:
    machine.empty_disk()
    return "disk has room"


async def wait(_machine: Machine, random: Random) -> str:
    """Time for looks, timers and retries."""
    pause = random.random()
    await anyio.sleep(pause)
    return f"{pause:.2f} s pass"


def list_steps(freeze_seconds: float) -> dict[Step, int]:
    return {
        add_pod: 30,
        delete_pod: 20,
        wait: 8,
        kill_agent: 4,
        restart_agent: 2,
        kill_worker: 2,
        reload_agent: 3,
        freeze_agent(freeze_seconds): 3,
        step_clock: 3,
        restart_kubelet: 3,
        forget_kubelet: 3,
        drop_plugin: 2,
        lose_api: 3,
        find_api: 3,
        confuse_api: 3,
        lose_runtime: 2,
        find_runtime: 2,
        restart_runtime: 2,
        lose_gpu: 4,
        restore_gpu: 4,
        hang_gpu: 3,
        unhang: 3,
        tell_xid: 2,
        cut_gpu: 4,
        fill_disk: 3,
        empty_disk: 3,
    }
