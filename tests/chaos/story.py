"""Which step comes next: drawn from the seed and from what the node is like, so that a seed tells its story again.

What happens inside a step still depends on how the processes of the machine take turns: a seed that fails is run
again as often as it takes.
"""

import signal
from collections.abc import Awaitable, Callable
from random import Random

import anyio

from tests.chaos.machine import GPUS, Machine

CALM_EVERY = 20
"""Steps between two moments at which everything is taken back and all must be well."""
MOST_PODS = 5
Step = Callable[[Machine, Random], Awaitable[str]]


async def add_pod(machine: Machine, random: Random) -> str:
    """A pod comes."""
    number, size = random.getrandbits(32), random.choice((1, 1, 1, 2, 4))
    await machine.add_pod(f"pod-{number:08x}", size)
    return f"pod {number:08x} of {size}"


async def delete_pod(machine: Machine, random: Random) -> str:
    """A pod goes."""
    if not machine.truth.pods:
        return "no pod to delete"
    name = random.choice(machine.truth.pods)
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
    """In order."""
    await machine.end_agent(signal.SIGTERM)
    return "restarted"


async def reload_agent(machine: Machine, _random: Random) -> str:
    """Nothing has changed; a process that does not listen to signals yet would be ended by this one."""
    if not machine.has_answered:
        return "no reload of an agent that only starts"
    machine.signal(signal.SIGHUP)
    return "reload"


async def freeze_agent(machine: Machine, random: Random) -> str:
    """The process stands still while a pod waits for it."""
    pause = random.random()
    machine.signal(signal.SIGSTOP)
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(add_pod, machine, random)
        await anyio.sleep(pause)
        machine.signal(signal.SIGCONT)
    return f"stood still for {pause:.2f} s"


async def restart_kubelet(machine: Machine, _random: Random) -> str:
    """It keeps its checkpoint."""
    await machine.kubelet.restart()
    return "kubelet restarted"


async def forget_kubelet(machine: Machine, _random: Random) -> str:
    """It loses its checkpoint while pods go on running."""
    await machine.kubelet.forget()
    return "kubelet forgot everything"


async def drop_plugin(machine: Machine, _random: Random) -> str:
    """The kubelet hangs up and does not say why."""
    machine.kubelet.drop_plugin("nvidia.com/gpu")
    return "kubelet hung up"


async def lose_gpu(machine: Machine, random: Random) -> str:
    """Off the bus."""
    gpu = random.randrange(GPUS)
    machine.fake.lose(gpu)
    return f"GPU {gpu} lost"


async def restore_gpu(machine: Machine, random: Random) -> str:
    """Back again, if it was away."""
    gpu = random.randrange(GPUS)
    if machine.fake.gpu(gpu).lost:
        machine.fake.restore(gpu)
    return f"GPU {gpu} there"


async def hang_gpu(machine: Machine, random: Random) -> str:
    """Every call on it blocks, deaf to signals."""
    gpu = random.randrange(GPUS)
    machine.fake.hang_gpu(gpu)
    return f"GPU {gpu} hangs"


async def unhang(machine: Machine, _random: Random) -> str:
    """All calls answer again."""
    machine.fake.clear()
    return "no call hangs"


async def fill_disk(machine: Machine, _random: Random) -> str:
    """Nothing can be written."""
    machine.fill_disk()
    return "disk full"


async def empty_disk(machine: Machine, _random: Random) -> str:
    """There is room again."""
    machine.empty_disk()
    return "disk has room"


async def wait(machine: Machine, random: Random) -> str:
    """Time for looks, timers and retries."""
    pause = random.random()
    await anyio.sleep(pause)
    return f"{pause:.2f} s pass"


STEPS: dict[Step, int] = {
    add_pod: 30,
    delete_pod: 20,
    wait: 10,
    kill_agent: 4,
    restart_agent: 2,
    reload_agent: 3,
    freeze_agent: 3,
    restart_kubelet: 3,
    forget_kubelet: 3,
    drop_plugin: 2,
    lose_gpu: 4,
    restore_gpu: 4,
    hang_gpu: 3,
    unhang: 3,
    fill_disk: 3,
    empty_disk: 3,
}
"""Each with its weight."""


def choose_step(machine: Machine, random: Random) -> Step:
    """Pods come until there are enough."""
    step = random.choices(list(STEPS), list(STEPS.values()))[0]
    return delete_pod if step is add_pod and len(machine.truth.pods) >= MOST_PODS else step
