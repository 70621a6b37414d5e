"""A single look at the node without an agent, for commands that must work without one."""

import anyio

from nodeagent.app.hardware import choose_hardware
from nodeagent.app.node_facts import choose_node_facts
from nodeagent.components.driver.decide import decide_driver
from nodeagent.components.labeler.render import LabelFacts
from nodeagent.config.live import LiveSettings
from nodeagent.config.schema import Settings
from nodeagent.core.children.worker_thread import WorkerThread
from nodeagent.model.gpu import Inventory


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
