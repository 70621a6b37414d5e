"""Chooses where GPUs come from: the one decision that makes a node real or simulated."""

from collections.abc import Callable, Coroutine
from dataclasses import dataclass
from typing import Any, Protocol

import anyio
from anyio.abc import TaskStatus

from nodeagent.components.driver.plan_markers import DriverPlace
from nodeagent.config.live import LiveSettings
from nodeagent.model.ports import DeviceNodes, DriverProbe, FaultInjector, GpuSource, ValidationMarkers


class Background(Protocol):
    """What must run for the ports to work; started once they do."""

    def __call__(self, *, task_status: TaskStatus[None]) -> Coroutine[Any, Any, None]: ...  # noqa: D102 - see above


@dataclass(frozen=True, slots=True)
class Hardware:
    """The ports to GPUs and driver."""

    probe: DriverProbe
    gpus: GpuSource
    run: Background
    faults: FaultInjector | None = None
    nodes: DeviceNodes | None = None
    markers: ValidationMarkers | None = None
    read_place: Callable[[], DriverPlace] = DriverPlace
