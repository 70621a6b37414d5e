"""The nodes whose exposition is kept: each shows what the others do not."""

from nodeagent.components.exporter.catalogue.all_fields import FIELDS
from nodeagent.components.exporter.catalogue.field import LabelField
from nodeagent.components.exporter.catalogue.selection import Selection, parse_selection, select_defaults
from nodeagent.components.exporter.exposition import join_openmetrics, join_text
from nodeagent.components.exporter.series.node_series import Knowledge, NodeSeries, SeriesSelection
from nodeagent.model.allocation import AllocationTable
from nodeagent.model.driver import DriverPhase, DriverState
from nodeagent.model.gpu import Inventory
from nodeagent_sim.gpus.profile import load_profile
from nodeagent_sim.gpus.readout import render_readout
from nodeagent_sim.gpus.sample import render_sample
from nodeagent_sim.gpus.world import World
from tests.support.samples import hold_each
from tests.unit.components.exporter.builders import START

GPUS = 2
"""Enough to see what differs from one GPU to the next."""


def render_scene(profile: str, *, every_field: bool = False, openmetrics: bool = False) -> str:
    """Two samples, ten seconds apart, of the first GPUs of a simulated node whose every second device a pod holds."""
    world = World(load_profile(profile), node_name="node-a", seed=7)
    world.advance(300.0)
    readout = render_readout(world)
    inventory = Inventory(generation=1, gpus=readout.gpus[:GPUS])
    known = Knowledge(inventory, _driver(), allocate_every_second(inventory))
    requests = SeriesSelection(select_every_field() if every_field else select_defaults(), host="node-a")
    series = NodeSeries()
    list(series.render(render_sample(world, START), known, requests))
    world.advance(310.0)
    blocks = list(series.render(render_sample(world, START + 10), known, requests))
    return (join_openmetrics(blocks) + b"# EOF\n" if openmetrics else join_text(blocks)).decode()


def _driver() -> DriverState:
    return DriverState(
        phase=DriverPhase.READY, driver_version="580.95.05", interface_version="13.580.95.05", cuda_version=(13, 0)
    )


def allocate_every_second(inventory: Inventory) -> AllocationTable:
    """A pod of its own for every second device."""
    return hold_each(inventory.device_uuids[::2], since_seconds=START)


def select_every_field() -> Selection:
    """All that the ordinary sample gives, labels and all."""
    kinds = {field.name: "label" if isinstance(field, LabelField) else field.type for field in FIELDS}
    return parse_selection("\n".join(f'{field.name}, {kinds[field.name]}, "{field.help}"' for field in FIELDS))
