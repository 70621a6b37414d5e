"""Chooses the source of the node's facts: the node's files, with made-up GPUs on the bus in a simulation."""

from nodeagent.config.schema import Settings
from nodeagent.core.children.worker_thread import WorkerThread
from nodeagent.edge.host.machine.node_facts import read_node_facts
from nodeagent.edge.host.machine.node_facts_reader import HostNodeFacts
from nodeagent.model.labels import NodeFacts


def choose_node_facts(settings: Settings, worker: WorkerThread) -> HostNodeFacts:
    """The port that `gpus.source` calls for.

    Raises:
        UnknownProfile: There is no such simulated node.
    """
    node = settings.node

    def read() -> NodeFacts:
        return read_node_facts(
            machine_type_file=settings.labels.machine_type_file, proc_root=node.proc_dir, sys_root=node.sys_dir
        )

    name = settings.gpus.simulated_profile
    if name is None:
        return HostNodeFacts(read, worker, node.sys_dir)
    from nodeagent.edge.simulated.node_facts import simulate_facts  # noqa: PLC0415 - real nodes do without it
    from nodeagent.edge.simulated.profile import load_profile  # noqa: PLC0415 - likewise

    profile = load_profile(name)
    return HostNodeFacts(lambda: simulate_facts(read(), profile), worker, node.sys_dir)
