"""The source of the node's facts, and a single look at the node for commands that must work without an agent."""

import anyio

from nodeagent.app.hardware import choose_hardware
from nodeagent.app.simulator import load_simulator
from nodeagent.components.driver.decide import decide_driver
from nodeagent.components.labeler.render import LabelFacts
from nodeagent.config.live import LiveSettings
from nodeagent.config.schema import Settings
from nodeagent.core.children.worker_thread import WorkerThread
from nodeagent.edge.host.machine.node_facts import HostNodeFacts, read_node_facts
from nodeagent.model.gpu import Inventory
from nodeagent.model.labels import NodeFacts


def choose_node_facts(settings: Settings, worker: WorkerThread) -> HostNodeFacts:
    """The node's files, with made-up GPUs on the bus in a simulation.

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


async def observe_node(settings: Settings, node_name: str) -> LabelFacts:
    """What labels are made of; without health, which takes longer than a single look.

    Raises:
        NodeagentError: The node does not answer.
        SourceUnusable: GPUs cannot come from where the settings say.
    """
    hardware = choose_hardware(LiveSettings(settings), node_name, seed=1)
    worker = WorkerThread("node facts")
    async with anyio.create_task_group() as tasks:
        await tasks.start(hardware.run, name="GPU source")
        try:
            facts = await choose_node_facts(settings, worker).read_facts()
            driver = decide_driver(await hardware.probe.read_evidence()).state
            readout = await hardware.gpus.read_inventory() if driver.ready else None
        finally:
            worker.close()
            tasks.cancel_scope.cancel()
    inventory = Inventory(generation=1, gpus=readout.gpus) if readout is not None else None
    return LabelFacts(facts=facts, driver=driver, inventory=inventory)
