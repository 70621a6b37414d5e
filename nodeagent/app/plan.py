"""What the command line asks the agent to be."""

from collections.abc import Callable
from dataclasses import dataclass, field

from nodeagent.config.load import Loaded
from nodeagent.edge.nvml.command import EarlyWorker


@dataclass(frozen=True, slots=True)
class SimulationPlan:
    """The stand-in kubelet beside a simulated node."""

    pods: int
    seed: int


@dataclass(frozen=True, slots=True)
class Endpoints:
    """Where the running agent is reached."""

    url: str
    admin_socket: str


@dataclass(frozen=True, slots=True)
class AgentPlan:
    """One run of the agent."""

    loaded: Loaded
    load_again: Callable[[str], Loaded]
    """For a reload: the same sources, read anew, with the named configuration that this node label chooses.

    Raises `ConfigurationInvalid`.
    """
    environ: dict[str, str] = field(default_factory=dict)
    require_driver: bool = False
    simulation: SimulationPlan | None = None
    stop_after_seconds: float | None = None
    announce: Callable[[Endpoints], None] = lambda _endpoints: None
    """Told once the endpoints answer."""
    early_worker: EarlyWorker | None = None
    """A GPU worker that was started ahead of everything."""
