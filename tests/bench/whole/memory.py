"""Memory of agent and worker with all that was ever added, beside the same with everything off that is off by default.

Four GPUs are given whole, two in fractions, two by claims; MIG is managed, and MPS for claims; both have an API server.
"""

import time

from tests.bench.around.api_server import api_server
from tests.bench.around.node import BenchNode, bench_node
from tests.bench.rows import Row
from tests.fakes.apiserver import NODE
from tests.fakes.mps import FakeMps

SETTLE_SECONDS = 10.0
PODS = 50


def measure() -> list[Row]:
    plain, whole = _weigh(everything=False), _weigh(everything=True)
    return [
        Row("agent and GPU worker with the API, PSS", "MiB", [plain], limit=60),
        Row("fractions, claims, MIG and MPS on, PSS", "MiB", [whole], limit=75),
    ]


def _weigh(*, everything: bool) -> float:
    with api_server() as api, bench_node() as node:
        kubeconfig = api.server.write_kubeconfig(node.directory / "kubeconfig")
        settings = ["kubernetes.enabled=true", f"kubernetes.kubeconfig={kubeconfig}", f"node.name={NODE}"]
        settings += list_everything(node) if everything else []
        with node.running_agent(*(word for setting in settings for word in ("--set", setting))) as agent:
            node.kubelet.wait("list", since=agent.began, resource="nvidia.com/gpu")
            agent.wait_ready()
            node.kubelet.admit(1, PODS)
            time.sleep(SETTLE_SECONDS)
            return agent.memory_mib("Pss")


def list_everything(node: BenchNode) -> list[str]:
    (node.directory / "registry").mkdir()
    doors = '[{"gpus": ["2", "3"], "door": "fractions"}, {"gpus": ["4", "5"], "door": "claims"}]'
    return [
        "fractions.enabled=true",
        "claims.enabled=true",
        f"claims.plugins_dir={node.directory}/plugins",
        f"claims.registry_dir={node.directory}/registry",
        f"doors.rules={doors}",
        "mig.manage=true",
        "mps.claims=true",
        f"mps.program={FakeMps(node.directory / 'driver').program}",
        f"device_plugin.mps_root={node.directory}/mps",
    ]
