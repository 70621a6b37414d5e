"""Rendering of a sample, without the agent round it: eight GPUs with every field, and sixteen cut into instances.

Processor time, since nothing here waits: a busy machine makes it no longer.
"""

import time

from msgspec.structs import replace

from nodeagent.components.exporter.catalogue.selection import Selection, select_defaults
from nodeagent.components.exporter.exposition import join_text
from nodeagent.components.exporter.scrape import RenderedBlocks, join_scrape
from nodeagent.components.exporter.series.node_series import Knowledge, NodeSeries, SeriesSelection
from nodeagent.model.gpu import Inventory
from nodeagent.model.telemetry import NodeSample
from nodeagent_sim.gpus.profile import load_profile
from nodeagent_sim.gpus.readout import render_readout
from nodeagent_sim.gpus.sample import render_sample
from nodeagent_sim.gpus.world import World
from tests.bench.rows import Row
from tests.golden.metrics.scenes import allocate_every_second, select_every_field
from tests.support.samples import make_gpu, make_mig
from tests.unit.components.exporter.builders import START, make_mig_shares, make_sample

RUNS = 300
MIG_GPUS, MIG_INSTANCES = 16, 7


def measure() -> list[Row]:
    """Milliseconds a sample, and a scrape of what is ready."""
    inventory, sample = _read_dgx()
    mig_inventory, mig_sample = _make_mig_node()
    return [
        Row("render 8 GPUs, default fields, pods, CPU", "ms", _render(inventory, sample, select_defaults()), limit=3),
        Row("render 8 GPUs, every field, pods, CPU", "ms", _render(inventory, sample, select_every_field()), limit=3),
        Row(
            "render 16 GPUs x 7 MIG, default fields, CPU",
            "ms",
            _render(mig_inventory, mig_sample, select_defaults()),
            15,
        ),
        Row("join a scrape of 8 GPUs, plain, CPU", "ms", _join(inventory, sample, gzip=False)),
        Row("join a scrape of 8 GPUs, gzip, CPU", "ms", _join(inventory, sample, gzip=True)),
    ]


def _render(inventory: Inventory, sample: NodeSample, selection: Selection) -> list[float]:
    series, requests = NodeSeries(), SeriesSelection(selection)
    known = Knowledge(inventory, None, allocate_every_second(inventory))
    spent = []
    for run in range(RUNS):
        began = time.thread_time()
        RenderedBlocks(list(series.render(replace(sample, time_seconds=START + run), known, requests)))
        spent.append((time.thread_time() - began) * 1000)
    return spent


def _join(inventory: Inventory, sample: NodeSample, *, gzip: bool) -> list[float]:
    blocks = list(NodeSeries().render(sample, Knowledge(inventory), SeriesSelection(select_defaults())))
    part, fresh = RenderedBlocks(blocks), blocks[:8]
    assert join_text(fresh)
    spent = []
    for _ in range(RUNS):
        began = time.thread_time()
        join_scrape(part, fresh, openmetrics=False, gzip=gzip)
        spent.append((time.thread_time() - began) * 1000)
    return spent


def _read_dgx() -> tuple[Inventory, NodeSample]:
    world = World(load_profile("dgx-h100"), node_name="bench", seed=1)
    world.advance(300.0)
    return Inventory(generation=1, gpus=render_readout(world).gpus), render_sample(world, START)


def _make_mig_node() -> tuple[Inventory, NodeSample]:
    indices = range(MIG_GPUS)
    gpus = tuple(make_gpu(index, mig=make_mig(index, MIG_INSTANCES)) for index in indices)
    samples = tuple(make_sample(index, mig=make_mig_shares(index, MIG_INSTANCES)) for index in indices)
    return Inventory(generation=1, gpus=gpus), NodeSample(time_seconds=START, gpus=samples)
