"""How soon the agent is at the kubelet, beside the least that a program of its kind could take on this machine.

That least is an interpreter which loads three libraries that such an agent cannot do without, and begins an event
loop. Both in turns, so that what the machine does meanwhile hits both alike.
"""

import os
import subprocess
import sys
import time

from tests.bench.around.node import bench_node
from tests.bench.rows import Row
from tests.bench.whole.agent import GPUS

LEAST = """
import grpclib, anyio, msgspec
async def begin():
    print("begun", flush=True)
anyio.run(begin)
"""


def measure(rounds: int) -> list[Row]:
    """One of each, again and again, and once of each before so that nothing is read from the disk."""
    least, register, spent_least, spent = [], [], [], []
    for turn in range(rounds + 1):
        wall, busy = _start_least()
        with bench_node() as node, node.running_agent() as agent:
            told = 1000 * (node.kubelet.wait("registered")["at"] - agent.began)
            busy_then = 1000 * agent.cpu_seconds()
            node.wait_advertised(agent, GPUS)  # a kubelet that is just calling back would not like it to be gone
            if turn:
                least.append(wall)
                spent_least.append(busy)
                register.append(told)
                spent.append(busy_then)
    return [
        Row("grpclib, anyio, msgspec and an empty loop", "ms", least),
        Row("  processor time for it", "ms", spent_least),
        Row("exec to Register, beside it", "ms", register),
        Row("  processor time of agent and worker until then", "ms", spent),
    ]


def _start_least() -> tuple[float, float]:
    """Milliseconds until its loop runs, and of processor time until it has ended."""
    before, began = os.times(), time.perf_counter()
    with subprocess.Popen([sys.executable, "-c", LEAST], stdout=subprocess.PIPE) as least:
        assert least.stdout is not None
        word = least.stdout.readline()
        wall = 1000 * (time.perf_counter() - began)
    assert word == b"begun\n", f"{sys.executable} cannot load what the agent is made of: {LEAST}"
    after = os.times()
    spent = after.children_user + after.children_system - before.children_user - before.children_system
    return wall, 1000 * spent
