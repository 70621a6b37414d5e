"""What acts on host and cluster for an upgrade of the driver."""

import sys
from pathlib import Path
from random import Random

import pytest

from nodeagent.app.hardware import choose_hardware
from nodeagent.app.wiring.driver_upgrades import UpgradeApi, find_services, run_on_host
from nodeagent.config.live import LiveSettings
from nodeagent.config.schema import Settings
from nodeagent.config.sections.hardware import GpusSettings
from nodeagent.core.clock import SystemClock
from nodeagent.edge.kube.evictions import KubeEvictions
from nodeagent.edge.kube.node import KubeNode
from tests.component.edge_kube.harness import open_client
from tests.fakes.apiserver import NODE

LABELS = {"app.kubernetes.io/component": "nvidia-driver", "app": "x"}


async def test_the_driver_pods_of_the_node_are_found_and_sent_away_as_budgets_allow(tmp_path: Path) -> None:
    async with open_client(tmp_path) as (server, client):
        for name, labels in (("driver-1", LABELS), ("train", {"app": "x"})):
            metadata = {"namespace": "gpu", "name": name, "uid": name, "labels": labels}
            spec = {"nodeName": NODE, "terminationGracePeriodSeconds": 0}
            server.pods[name] = {"metadata": metadata, "spec": spec}

        async def open_api() -> tuple[KubeNode, KubeEvictions]:
            return KubeNode(client, NODE, SystemClock(), Random(1)), KubeEvictions(client, NODE)

        cluster = UpgradeApi(open_api)
        assert await cluster.list_driver_pods() == ("gpu/driver-1",)
        server.store.budgets.add("x")
        assert await cluster.send_away("gpu/driver-1") == "a disruption budget keeps the driver's pod gpu/driver-1"
        server.store.budgets.clear()
        assert await cluster.send_away("gpu/driver-1") == ""
        assert await cluster.list_driver_pods() == ()


@pytest.mark.may_block("a profile is read")
def test_a_simulation_stops_no_service_of_this_machine() -> None:
    live = LiveSettings(Settings(gpus=GpusSettings(source="simulated:t4")))
    assert live.now.driver.services
    assert find_services(live, choose_hardware(live, "node", 1)).read_names() == ()


async def test_a_command_runs_with_the_programs_of_the_host() -> None:
    answer = await run_on_host(Path("/"))((sys.executable, "-c", "print('installed')"), 30.0)
    assert (answer.code, answer.said) == (0, "installed\n")
