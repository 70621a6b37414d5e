"""MPS daemons as series."""

from nodeagent.components.exporter.exposition import render_exposition
from nodeagent.components.exporter.families.gpus import build_mps_families
from nodeagent.model.mps import MpsClient, MpsPhase, MpsState
from tests.support.gpus import gpu_uuid
from tests.support.mps import daemon_of
from tests.support.texts.exposition import read_text
from tests.unit.components.exporter.builders import find_value


def test_each_daemon_says_whether_it_is_ready_and_who_works() -> None:
    """Without daemons there is no series."""
    clients = (MpsClient(pid=1), MpsClient(pid=2))
    state = MpsState(daemons=(daemon_of(gpu_uuid(0), clients=clients), daemon_of(gpu_uuid(1), MpsPhase.BROKEN)))
    series = read_text(render_exposition(build_mps_families(state)).decode())
    first, second = ({"daemon": str(gpu_uuid(index)), "owner": "nvidia.com/gpu"} for index in range(2))
    assert find_value(series, "nodeagent_mps_daemon_ready", **first) == 1
    assert find_value(series, "nodeagent_mps_daemon_ready", **second) == 0
    assert find_value(series, "nodeagent_mps_clients", **first) == 2
    assert find_value(series, "nodeagent_mps_daemon_starts_total", **second) == 1
    assert not any(family.samples for family in build_mps_families(MpsState()))
