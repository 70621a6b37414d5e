"""The gauges of the GPU operator's node-status exporter, under the same names, for existing alerts; pure."""

from collections.abc import Iterator

from nodeagent.components.exporter.exposition import Family, gauge
from nodeagent.model.driver import DriverState
from nodeagent.model.gpu import Inventory
from nodeagent.model.plugin import AdvertisedDevice, PluginState
from nodeagent.model.runtime import RuntimeState
from nodeagent.model.telemetry import NodeSample
from nodeagent.model.values import Value
from nodeagent.rules.ids import DEVICE_PREFIX


class NodeStatus(Value, frozen=True):
    """The last state of each component, and the time of the last good state."""

    started_seconds: float
    node: str = ""
    driver_works: bool | None = None
    runtime: RuntimeState | None = None
    plugin: PluginState | None = None
    inventory: Inventory | None = None
    driver_ready_seconds: float | None = None
    devices_seen_seconds: float | None = None
    cuda_tested: bool = False
    """Whether the driver counts as ready only once a CUDA context could be made."""


def build_status_families(status: NodeStatus) -> tuple[Family, ...]:
    """The gauges with a known value; a component without a state has no series."""
    driver_ready = status.driver_works
    devices = count_advertised(status.plugin) if status.plugin is not None else None
    pci = len(status.inventory.gpus) + len(status.inventory.missing) if status.inventory is not None else None
    rows = (
        ("metrics_ready_ts_seconds", "Start of the agent, Unix time.", status.started_seconds),
        ("driver_ready", "Whether the driver works.", driver_ready),
        (
            "toolkit_ready",
            "Whether containers can be given GPUs.",
            not status.runtime.restart_needed if status.runtime is not None else None,
        ),
        (
            "plugin_ready",
            "Whether the kubelet knows all resources, and may hand out at least one device.",
            is_plugin_ready(status.plugin) if status.plugin is not None else None,
        ),
        ("cuda_ready", "Whether the CUDA smoke test passes.", driver_ready if status.cuda_tested else None),
        ("driver_validation", "Whether the driver works.", driver_ready),
        (
            "driver_validation_last_success_ts_seconds",
            "When the driver was last seen to work, Unix time.",
            status.driver_ready_seconds,
        ),
        ("device_plugin_devices_total", "Devices advertised to the kubelet.", devices),
        (
            "device_plugin_validation_last_success_ts_seconds",
            "When devices were last advertised, Unix time.",
            status.devices_seen_seconds,
        ),
    )
    labels = (("node", status.node),)
    return (
        *(gauge(f"gpu_operator_node_{name}", text, [(labels, value)]) for name, text, value in rows),
        gauge("gpu_operator_nvidia_pci_devices_total", "GPUs on the PCI bus.", [(labels, pci)]),
    )


def does_driver_work(driver: DriverState | None, sample: NodeSample | None, now_seconds: float) -> bool | None:
    """Whether the driver works now: a good last probe and an answer since; `None` before the first probe.

    The gate of the same name is a milestone of the start and stays open.
    """
    if driver is None:
        return None
    return driver.ready and (sample is None or not sample.is_old(now_seconds))


def is_plugin_ready(plugin: PluginState) -> bool:
    """Whether pods can get GPUs, as far as the kubelet is concerned."""
    is_known = bool(plugin.resources) and all(one.registered for one in plugin.resources)
    return is_known and any(device.healthy for device in _list_devices(plugin))


def count_advertised(plugin: PluginState) -> int:
    """Devices of all resources for GPUs."""
    return sum(1 for _ in _list_devices(plugin))


def _list_devices(plugin: PluginState) -> Iterator[AdvertisedDevice]:
    """GPUs, MIG devices, replicas and fractions; devices of other vendors are no matter of GPU operators."""
    for resource in plugin.resources:
        yield from (device for device in resource.devices if not device.id.startswith(DEVICE_PREFIX))
