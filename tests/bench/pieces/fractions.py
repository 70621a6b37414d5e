"""What a pod with a part of a GPU waits for: two durable promises at its admission, its binding at its start.

Asked as the kubelet's gRPC for Go asks, with a hundred pods of its kind on the node, whose records the agent reads at
each start to find whose the ids are.
"""

from tests.bench.around.node import bench_node
from tests.bench.rows import Row

ROUNDS = 300
STANDING = 100
CORE, MEMORY = "tencent.com/vcuda-core", "tencent.com/vcuda-memory"
SETTINGS = (
    "gpus.source=simulated:dgx-h100",
    "fractions.enabled=true",
    'doors.rules=[{"gpus": ["all"], "door": "fractions"}]',
)


def measure(rounds: int = ROUNDS) -> list[Row]:
    """One of each hundredth and block, so that all pods have room."""
    words = [word for setting in SETTINGS for word in ("--set", setting)]
    with bench_node() as node, node.running_agent(*words) as agent:
        node.kubelet.wait("list", since=agent.began, resource=MEMORY)
        agent.wait_ready()
        millis = node.kubelet.admit(1, rounds, CORE, also={MEMORY: 1}, standing=STANDING)
    name = "Allocate of both + PreStart, durable, 100 pods"
    return [Row(name, "ms", millis, limit=4.0), Row(f"{name}, slowest", "ms", millis, limit=12.0, limit_is_for=0.99)]
