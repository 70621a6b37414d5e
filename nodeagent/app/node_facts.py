"""Chooses the source of the node's facts: the node's files, with made-up GPUs on the bus in a simulation."""

from nodeagent.app.simulator import load_simulator
from nodeagent.config.schema import Settings
from nodeagent.core.children.worker_thread import WorkerThread
from nodeagent.edge.host.machine.node_facts import HostNodeFacts, read_node_facts
from nodeagent.model.labels import NodeFacts


def choose_node_facts(settings: Settings, worker: WorkerThread) -> HostNodeFacts:
    """The port that `gpus.source` calls for.

    Raises:
        SourceUnusable: GPUs cannot come from there.
    """
    node = settings.node

    def read() -> NodeFacts:
        return read_node_facts(
            machine_type_file=settings.labels.machine_type_file, proc_root=node.proc_dir, sys_root=node.sys_dir
        )

    name = settings.gpus.simulated_profile
    if name is None:
        return HostNodeFacts(read, worker, node.sys_dir)
    simulate = load_simulator().simulate_facts(name)
    return HostNodeFacts(lambda: simulate(read()), worker, node.sys_dir)
