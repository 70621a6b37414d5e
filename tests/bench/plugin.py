"""What pods wait for: preferred allocation, Allocate with its durable record, registration, and long lists.

The kubelet's side is the stand-in in this process, with gRPC's C core as its client; the agent is a process of its own
on a simulated node, which samples its GPUs and is scraped meanwhile.
"""

import http.client
import os
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from random import Random

import anyio

from nodeagent.components.deviceplugin.advertise import View, plan_list
from nodeagent.components.deviceplugin.offer import Resource
from nodeagent.components.deviceplugin.prefer import Preference
from nodeagent.components.deviceplugin.resources import plan_resources
from nodeagent.components.deviceplugin.topology import plan_topology
from nodeagent.config.schema import Settings
from nodeagent.config.sections.sharing import SharedResource, SharingSettings, TimeSlicing
from nodeagent.edge.kubelet.messages import render_devices
from nodeagent.edge.simulated.kubelet.kubelet import StandInKubelet
from nodeagent.model.gpu import Inventory, PathKind
from tests.bench.agent import PROFILE, free_port
from tests.bench.core_kubelet import CorePluginClient
from tests.bench.rows import Row
from tests.support.gpus import make_gpu, make_inventory

GPU = "nvidia.com/gpu"
ROUNDS = 2000
STARTS = 5
SCRAPE_SECONDS = 1.0
PATIENCE_SECONDS = 60.0


def measure_decisions() -> list[Row]:
    """The pure parts, each for the first time: nothing is remembered from one sample to the next."""
    return [*_measure_sizes(), *_measure_shares()]


def _tree(left: int, right: int) -> tuple[PathKind, int]:
    """Sixteen GPUs behind an NVSwitch fabric: pairs under switches, four under a bridge, eight on a socket."""
    kinds = ((2, PathKind.BRIDGE), (4, PathKind.BRIDGES), (8, PathKind.NODE), (16, PathKind.SYSTEM))
    return next(path for near, path in kinds if left // near == right // near), 12


def _measure_sizes() -> list[Row]:
    inventory = make_inventory([make_gpu(index) for index in range(16)], _tree)
    (resource,) = plan_resources(inventory, Settings()).resources
    topology, chance = plan_topology(inventory), Random(1)
    ids = [device.id for device in resource.devices]
    worst: list[float] = []
    for size in range(1, 17):
        for free in [16] * 3 + [chance.randint(size, 16) for _ in range(5)]:
            preference = Preference(resource, topology, "distributed")
            available = chance.sample(ids, free)
            worst.append(_milliseconds(lambda: preference.prefer(available, (), size)))  # noqa: B023  called at once
    return [Row("preferred, every size out of 16 GPUs", "ms", worst, limit=5, limit_is_for=1.0)]


def _measure_shares() -> list[Row]:
    inventory = make_inventory([make_gpu(index, numa_node=index // 8) for index in range(16)])
    shared = TimeSlicing(resources=(SharedResource(name="gpu", replicas=100),))
    (resource,) = plan_resources(inventory, Settings(sharing=SharingSettings(timeSlicing=shared))).resources
    preference = Preference(resource, plan_topology(inventory), "distributed")
    ids, chance = [device.id for device in resource.devices], Random(1)
    shuffled = [chance.sample(ids, len(ids)) for _ in range(50)]
    return [
        Row(
            "preferred, 4 of 1,600 shares",
            "ms",
            [_milliseconds(lambda: preference.prefer(available, (), 4)) for available in shuffled],  # noqa: B023  called at once
        ),
        Row(
            "planning and writing a list of 1,600 shares",
            "ms",
            [_milliseconds(lambda: _write_list(resource, inventory)) for _ in range(50)],
            limit=20,
            limit_is_for=0.99,
        ),
    ]


def _write_list(resource: Resource, inventory: Inventory) -> bytes:
    return render_devices(plan_list(resource, View(inventory, None))).SerializeToString()


def _milliseconds(work: Callable[[], object]) -> float:
    began = time.perf_counter()
    work()
    return (time.perf_counter() - began) * 1000


class Agent:
    """A real run of the agent with simulated GPUs, on the directories of a stand-in kubelet."""

    def __init__(self, root: Path, *settings: str) -> None:
        self.port = free_port()
        kubelet = root / "kubelet"
        words = (
            f"gpus.source=simulated:{PROFILE}",
            f"kubelet.device_plugins_dir={kubelet / 'device-plugins'}",
            f"kubelet.pod_resources_socket={kubelet / 'pod-resources' / 'kubelet.sock'}",
            f"node.state_dir={root / 'state'}",
            f"node.run_dir={root / 'run'}",
            f"http.listen=127.0.0.1:{self.port}",
            *settings,
        )
        sets = [part for word in words for part in ("--set", word)]
        self._command = [sys.executable, "-m", "nodeagent", "run", "--config", "/dev/null", *sets]
        self._process: subprocess.Popen[bytes] | None = None

    def start(self) -> None:
        environment = {"PATH": os.environ["PATH"]}
        self._process = subprocess.Popen(
            self._command, env=environment, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
        )

    def stop(self) -> None:
        assert self._process is not None
        self._process.send_signal(signal.SIGTERM)
        self._process.wait(PATIENCE_SECONDS)

    async def scrape_for_ever(self) -> None:
        while True:
            await anyio.to_thread.run_sync(self._scrape)
            await anyio.sleep(SCRAPE_SECONDS)

    def _scrape(self) -> None:
        with suppress(OSError):  # while the agent starts nobody answers
            connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=5)
            connection.request("GET", "/metrics")
            connection.getresponse().read()
            connection.close()


@asynccontextmanager
async def _node(*settings: str) -> AsyncIterator[tuple[StandInKubelet, Agent]]:
    with tempfile.TemporaryDirectory(prefix="nb-") as name:
        root = Path(name)
        kubelet = StandInKubelet(root / "kubelet", dial=CorePluginClient)
        async with anyio.create_task_group() as tasks:
            await tasks.start(kubelet.run)
            agent = Agent(root, *settings)
            tasks.start_soon(agent.scrape_for_ever)
            with anyio.fail_after(600):
                yield kubelet, agent
            tasks.cancel_scope.cancel()


def _is_offered(kubelet: StandInKubelet) -> bool:
    offer = kubelet.offers().get(GPU)
    return offer is not None and offer.allocatable > 0


async def _measure_starts() -> list[Row]:
    """From exec, and from the start after a stop, until the kubelet has the devices."""
    registered: list[float] = []
    async with _node() as (kubelet, agent):
        for _ in range(STARTS):
            began = time.perf_counter()
            agent.start()
            await kubelet.wait_until(lambda: _is_offered(kubelet))
            registered.append((time.perf_counter() - began) * 1000)
            agent.stop()
            await kubelet.wait_until(lambda: not _is_offered(kubelet))
    return [Row("exec to devices with the kubelet, 8 GPUs", "ms", registered, limit=500)]


async def _measure_admissions(
    name: str, size: int, rounds: int, limits: Sequence[tuple[float, float]], *settings: str
) -> list[Row]:
    async with _node(*settings) as (kubelet, agent):
        agent.start()
        await kubelet.wait_until(lambda: _is_offered(kubelet))
        for number in range(rounds):
            await kubelet.add_pod("bench", f"pod-{number}", {GPU: size})
            kubelet.delete_pod("bench", f"pod-{number}")
        times = [(each.prefer_seconds + each.allocate_seconds) * 1000 for each in kubelet.call_times]
        agent.stop()
    return [Row(name, "ms", times, limit=limit, limit_is_for=share) for limit, share in limits]


def measure_admissions() -> list[Row]:
    """What a pod waits for, answered by the whole agent at work."""
    shares = "sharing.timeSlicing={resources: [{name: nvidia.com/gpu, replicas: 200}]}"
    return [
        *anyio.run(_measure_starts),
        *anyio.run(
            lambda: _measure_admissions(
                "preferred (4 of 8) and Allocate, durable", 4, ROUNDS, [(1.0, 0.5), (2.5, 0.99)]
            )
        ),
        *anyio.run(lambda: _measure_admissions("the same among 1,600 shares", 4, ROUNDS // 10, [(10.0, 0.99)], shares)),
    ]
