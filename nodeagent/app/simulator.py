"""The way to the simulator, a package of its own: found by its name, and loaded only where GPUs are made up."""

from importlib import import_module
from types import ModuleType
from typing import TYPE_CHECKING, Any

from msgspec import Struct

from nodeagent.model.errors import SourceUnusable

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine
    from pathlib import Path

    from nodeagent.app.hardware import Hardware
    from nodeagent.config.live import LiveSettings
    from nodeagent.core.channels.bus import Bus
    from nodeagent.core.children.worker_thread import WorkerThread
    from nodeagent.model.labels import NodeFacts
    from nodeagent.model.ports import DriverFileSource, FractionFolders, MpsHost, ProcessPlaces, VgpuLibrary

PACKAGE = "nodeagent_sim"
NODE_MODULE = f"{PACKAGE}.node"
"""The module with a `Simulator` named `SIMULATOR`."""


class Simulator(Struct, frozen=True):
    """The parts of a simulated node, by profile."""

    build_hardware: "Callable[[str, LiveSettings, str, int], Hardware]"
    """From the profile's name, the settings, the node's name and the seed of the load."""
    simulate_facts: "Callable[[str], Callable[[NodeFacts], NodeFacts]]"
    """From the profile's name: what makes of a host's facts those of a host with these GPUs."""
    build_driver_files: "Callable[[], DriverFileSource]"
    build_mps: "Callable[[], MpsHost]"


class Simulation(Struct, frozen=True):
    """Ports of simulated GPUs beside those of hardware."""

    places: "ProcessPlaces"
    """The pods of processes, which are as simulated as the GPUs."""
    build_part_files: "Callable[[Path, Path, WorkerThread], tuple[FractionFolders, VgpuLibrary]]"
    """Files of simulated containers with fractions, from the folders of the fractions and of the library."""
    follow_journal: "Callable[[Bus], Coroutine[Any, Any, None]]"
    """Has the pods of a real cluster work on their GPUs."""


class SimulatorMissing(SourceUnusable):
    """The installation has no simulator."""

    def __init__(self) -> None:
        super().__init__(f"this installation has no simulator: the Python package {PACKAGE} is missing")


def load_simulator() -> Simulator:
    """The installed simulator.

    Raises:
        SimulatorMissing: There is none.
    """
    simulator: Simulator = import_of_simulator(NODE_MODULE).SIMULATOR
    return simulator


def import_of_simulator(name: str) -> ModuleType:
    """Import a module, which may be the simulator's.

    Raises:
        SimulatorMissing: The module is the simulator's, and the simulator is not installed.
    """
    try:
        return import_module(name)
    except ModuleNotFoundError as error:
        if error.name != PACKAGE:
            raise
        raise SimulatorMissing from None
