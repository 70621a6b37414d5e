"""What acts on host and cluster for an upgrade of the driver."""

import sys
from pathlib import Path
from random import Random

from nodeagent.app.wiring.driver_upgrades import UpgradeApi, run_beside_the_simulation, run_on_host
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


async def test_a_simulation_touches_no_service_of_this_machine() -> None:
    run = run_beside_the_simulation(run_on_host(Path("/")))
    assert "made-up GPUs have no services" in (await run(("systemctl", "stop", "nvidia-persistenced"), 5.0)).said
    answer = await run((sys.executable, "-c", "print('installed')"), 30.0)
    assert (answer.code, answer.said) == (0, "installed\n")
