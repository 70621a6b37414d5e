"""Chooses where GPUs come from: the one decision that makes a node real or simulated."""

from collections.abc import Awaitable, Callable
from dataclasses import dataclass

from nodeagent.config.live import LiveSettings
from nodeagent.model.ports import DriverProbe, FaultInjector, GpuSource


@dataclass(frozen=True, slots=True)
class Hardware:
    """The ports to GPUs, and what must run in the background for them."""

    probe: DriverProbe
    gpus: GpuSource
    faults: FaultInjector | None
    run: Callable[[], Awaitable[None]]


def choose_hardware(live: LiveSettings, node_name: str, seed: int) -> Hardware:
    """The edges that `gpus.source` names.

    Raises:
        UnknownProfile: no such simulated node.
    """
    raise NotImplementedError
