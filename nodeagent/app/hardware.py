"""Chooses where GPUs come from: the decision between a real and a simulated node."""

from collections.abc import Callable, Coroutine
from typing import Any, Protocol

from anyio.abc import TaskStatus
from msgspec import Struct, field

from nodeagent.app.simulator import Simulation, load_simulator
from nodeagent.components.driver.plan_markers import DriverPlace
from nodeagent.config.live import LiveSettings
from nodeagent.config.schema import Settings
from nodeagent.edge.host.driver.off_loop import MarkerDirectory
from nodeagent.model.mps import MARKER
from nodeagent.model.nvidia import VENDOR
from nodeagent.model.ports import (
    DeviceNodes,
    DriverFileSource,
    DriverModules,
    DriverProbe,
    DriverTool,
    FaultInjector,
    GpuPartitioning,
    GpuSource,
)
from nodeagent.model.vendor import Vendor


def is_mps_used(settings: Settings) -> bool:
    """Whether MPS daemons are wanted, or some are left from former settings."""
    return settings.uses_mps or (settings.device_plugin.mps_root / MARKER).exists()


def is_partitioning_used(settings: Settings) -> bool:
    """Whether any component changes GPUs: MIG devices, compute modes, or time slices."""
    return settings.mig.manage or is_mps_used(settings) or (settings.claims.enabled and settings.claims.time_slices)


class Background(Protocol):
    """The background work of the ports; reports its start once the ports work."""

    def __call__(self, *, task_status: TaskStatus[None]) -> Coroutine[Any, Any, None]: ...  # noqa: D102 - see above


class ExtraReadings(Struct):
    """Wanted readings beside the ordinary sample; named by the makers of metrics, read by the sampler."""

    names: tuple[str, ...] = ()

    def read(self) -> tuple[str, ...]:
        """The names now."""
        return self.names

    def want(self, names: tuple[str, ...]) -> None:
        """Want exactly these readings from now on."""
        self.names = names


class Hardware(Struct, frozen=True):
    """The ports to GPUs and driver."""

    probe: DriverProbe
    gpus: GpuSource
    run: Background
    faults: FaultInjector | None = None
    nodes: DeviceNodes | None = None
    modules: DriverModules | None = None
    markers: MarkerDirectory | None = None
    read_place: Callable[[], DriverPlace] = DriverPlace
    simulation: Simulation | None = None
    """Further ports of simulated GPUs; `None` for real GPUs."""
    extras: ExtraReadings = field(default_factory=ExtraReadings)
    partitioning: GpuPartitioning | None = None
    """Access for changes of GPUs; `None` where no component changes any."""
    tool: DriverTool | None = None
    """The driver's own program; `None` where there is none."""
    vendor: Vendor = VENDOR
    driver_files: DriverFileSource | None = None
    """The driver's files for containers; `None` where they lie on the host as NVIDIA's driver installs them."""


ChooseHardware = Callable[[LiveSettings, str, int], Hardware]
"""Builds the ports to the GPUs of a vendor, or of a simulation."""


def choose_hardware(live: LiveSettings, node_name: str, seed: int) -> Hardware:
    """The edges named by `gpus.source`.

    Raises:
        SourceUnusable: GPUs cannot come from there.
    """
    profile = live.now.gpus.simulated_profile
    if profile is not None:
        return load_simulator().build_hardware(profile, live, node_name, seed)
    from nodeagent.app.real_hardware import RealHardware  # noqa: PLC0415 - a simulation does without it

    return RealHardware(live).build()
