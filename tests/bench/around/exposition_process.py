"""Renders and serves metrics alone, in a process that others measure.

With a port it serves sixteen GPUs of seven MIG devices each, sampled anew each second. Without one it says what the
exporter costs in memory: the process with everything imported that the agent has anyhow, and again with eight GPUs
rendered over and over, every field and pods.
"""

import socket
import sys
from functools import partial
from pathlib import Path

import anyio
from msgspec.structs import replace

from nodeagent.config.live import LiveSettings
from nodeagent.config.schema import Settings
from nodeagent.core.channels.bus import Bus
from nodeagent.core.clock import SystemClock
from nodeagent.core.conditions import Conditions
from nodeagent.core.introspect import Introspection
from nodeagent.core.life.gates import Gates
from nodeagent.edge.http.routes import Route, Routes
from nodeagent.edge.http.server import HttpServer
from nodeagent.model.allocation import AllocationTable
from nodeagent.model.conditions import CATALOGUE
from nodeagent.model.gpu import Inventory
from nodeagent.model.telemetry import GpuSample, MigSample, NodeSample, ProfilingSample
from nodeagent_sim.gpus.profile import load_profile
from nodeagent_sim.gpus.readout import render_readout
from nodeagent_sim.gpus.sample import render_sample
from nodeagent_sim.gpus.world import World
from tests.support.samples import hold_each, make_gpu, make_mig

START = 1_767_225_600.0
SAMPLES = 120
MIG_GPUS, MIG_INSTANCES = 16, 7
Node = tuple[Inventory, NodeSample, AllocationTable]
SERVING = "serving"


def main() -> None:
    if len(sys.argv) > 1:
        anyio.run(_serve, int(sys.argv[1]))
    else:
        sys.stdout.write(f"{_weigh() / 1024:.3f}\n")


async def _serve(port: int) -> None:
    from nodeagent.components.exporter.component import AgentCounts, AgentFactsSource, Exporter  # noqa: PLC0415 - not to be weighed

    clock = SystemClock()
    bus = Bus(clock)
    conditions = Conditions(bus, clock, CATALOGUE)
    renderer = AgentFactsSource(
        bus,
        Gates((), clock=clock),
        conditions,
        clock,
        Introspection(),
        AgentCounts(tuple),
        version="",
        started_seconds=0,
    )
    exporter = Exporter(bus, conditions, clock, LiveSettings(Settings()), renderer, None, host="bench")
    inventory, sample, allocations = _make_mig_node()
    bus.publish_state(inventory, source="bench")
    bus.publish_state(allocations, source="bench")
    listener = socket.create_server(("127.0.0.1", port))
    routes = Routes([Route("GET", "/metrics", exporter.answer)])
    server = HttpServer(routes, on_error=_give_up, on_exhausted=partial(_give_up, "accept"))
    async with anyio.create_task_group() as tasks, server.serving(listener):
        await tasks.start(lambda *, task_status: exporter.run(task_status=task_status))
        sys.stdout.write(f"{SERVING}\n")
        sys.stdout.flush()
        while True:
            bus.publish_state(replace(sample, time_seconds=clock.wall()), source="bench")
            await anyio.sleep(1)


def _give_up(what: str, error: Exception) -> None:
    raise SystemExit(f"{what}: {error}")


def _weigh() -> float:
    """Private memory of the exporter alone, KiB."""
    inventory, sample, allocations = _read_dgx()
    before = _read_private_kib()
    from nodeagent.components.exporter.component import Exporter  # noqa: PLC0415 - this is what is weighed
    from nodeagent.components.exporter.scrape import RenderedBlocks, join_scrape  # noqa: PLC0415 - likewise
    from nodeagent.components.exporter.series.node_series import Knowledge, NodeSeries, SeriesSelection  # noqa: PLC0415 - likewise
    from tests.golden.metrics.scenes import select_every_field  # noqa: PLC0415 - likewise

    series, requests = NodeSeries(), SeriesSelection(select_every_field())
    known = Knowledge(inventory, None, allocations)
    kept, body = [Exporter], b""
    for second in range(SAMPLES):
        part = RenderedBlocks(
            list(series.render(replace(sample, time_seconds=sample.time_seconds + second), known, requests))
        )
        body = join_scrape(part, [], openmetrics=second % 2 == 0, gzip=second % 3 == 0)
    assert kept
    assert body
    return _read_private_kib() - before


def _read_dgx() -> Node:
    """Eight GPUs, each held by a pod."""
    world = World(load_profile("dgx-h100"), node_name="bench", seed=1)
    world.advance(300.0)
    inventory = Inventory(generation=1, gpus=render_readout(world).gpus)
    return inventory, render_sample(world, START), hold_each(inventory.device_uuids, since_seconds=START)


def _make_mig_node() -> Node:
    """Each instance held by a pod."""
    gpus = tuple(make_gpu(index, mig=make_mig(index, MIG_INSTANCES)) for index in range(MIG_GPUS))
    inventory = Inventory(generation=1, gpus=gpus)
    shape = render_sample(World(load_profile("a100-80gb-mig"), node_name="bench", seed=1), START).gpus[0]
    samples = tuple(_sample(shape, number, inventory) for number in range(MIG_GPUS))
    return (
        inventory,
        NodeSample(time_seconds=START, gpus=samples),
        hold_each(inventory.device_uuids, since_seconds=START),
    )


def _sample(shape: GpuSample, number: int, inventory: Inventory) -> GpuSample:
    gpu = inventory.gpus[number]
    shares = tuple(
        MigSample(
            uuid=device.uuid,
            gpu_instance_id=device.gpu_instance_id,
            compute_instance_id=device.compute_instance_id,
            memory_used_bytes=1 << 30,
            profiling=ProfilingSample(graphics_engine_active=0.5, tensor_active=0.25),
        )
        for device in gpu.mig_devices
    )
    return replace(shape, uuid=gpu.uuid, mig=shares)


def _read_private_kib() -> float:
    lines = Path("/proc/self/smaps_rollup").read_text().splitlines()
    return sum(float(line.split()[1]) for line in lines if line.startswith(("Private_Clean:", "Private_Dirty:")))


if __name__ == "__main__":
    main()
