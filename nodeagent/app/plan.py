"""Questions of the command line to the agent."""

from collections.abc import Callable, Coroutine
from pathlib import Path
from typing import Any

from msgspec import Struct, field

from nodeagent.app.node_label import Recalled
from nodeagent.config.load import Loaded
from nodeagent.core.channels.bus import Bus
from nodeagent.model.ports import GpuSource


class SimulationPlan(Struct, frozen=True):
    """A node without neighbours, whose kubelet is played in this process."""

    seed: int
    """Of the load on simulated GPUs."""
    play_kubelet: Callable[[Path, Bus, GpuSource], Coroutine[Any, Any, None]]
    """Under the kubelet's directory, until cancelled."""


class Endpoints(Struct, frozen=True):
    """Where the running agent is reached."""

    url: str
    taken: str = ""
    """The wanted address, where another had to do."""


class AgentPlan(Struct, frozen=True):
    """A run of the agent."""

    loaded: Loaded
    reload_settings: Callable[[str], Loaded]
    """For a reload: the same sources, read anew, with the named configuration of the given node label.

    Raises `ConfigurationInvalid`.
    """
    recalled: Recalled
    """The node label followed last, whose configuration may be among the loaded settings."""
    environ: dict[str, str] = field(default_factory=dict)
    require_driver: bool = False
    patience_seconds: float = 0.0
    """How long to wait for another agent in the same state directory."""
    is_standby: bool = False
    """Whether to be ready while waiting, and to wait on after the patience."""
    simulation: SimulationPlan | None = None
    may_move: bool = False
    """Whether the next free port will do where the configured port is taken."""
    stop_after_seconds: float | None = None
    announce: Callable[[Endpoints], None] = lambda _endpoints: None
    """Called once the endpoints answer."""
