"""A device plugin that does as a test says: the kubelet edge asks it, in place of the component."""

import asyncio
from collections.abc import Sequence

from nodeagent.model.errors import AllocationError, DeviceUnknown
from nodeagent.model.ids import DeviceId, ResourceName
from nodeagent.model.plugin import AdvertisedDevice, ContainerAnswer, PluginOptions


def make_devices(count: int, *, numa_nodes: int = 0, prefix: str = "GPU-") -> tuple[AdvertisedDevice, ...]:
    """A healthy device list; spread over NUMA nodes if there are any."""
    return tuple(
        AdvertisedDevice(
            id=DeviceId(f"{prefix}{number:04d}"), healthy=True, numa_node=number % numa_nodes if numa_nodes else None
        )
        for number in range(count)
    )


class FakeDevicePlugin:
    """Prefers the first devices in order, allocates what it knows, and remembers what it was asked."""

    def __init__(
        self,
        devices: tuple[AdvertisedDevice, ...] = make_devices(8),
        *,
        resource: str = "nvidia.com/gpu",
        options: PluginOptions | None = None,
    ) -> None:
        self.resource, self.options = ResourceName(resource), options or PluginOptions()
        self._devices, self._changed = devices, asyncio.Event()
        self.preferences: list[tuple[tuple[str, ...], tuple[str, ...], int]] = []
        self.asked: list[tuple[str, ...]] = []
        self.allocated: list[tuple[str, ...]] = []
        self.started: list[tuple[str, ...]] = []
        self.refusal: AllocationError | None = None
        self.start_refusal: AllocationError | None = None
        self.crash: Exception | None = None
        self.allocate_gate: asyncio.Event | None = None

    def set_devices(self, devices: tuple[AdvertisedDevice, ...]) -> None:
        """From now on this is the list."""
        self._devices = devices
        changed, self._changed = self._changed, asyncio.Event()
        changed.set()

    async def wait_devices(self, known: tuple[AdvertisedDevice, ...] | None) -> tuple[AdvertisedDevice, ...]:
        while self._devices == known:
            await self._changed.wait()
        return self._devices

    def prefer(self, available: Sequence[DeviceId], must_include: Sequence[DeviceId], size: int) -> Sequence[DeviceId]:
        self._maybe_crash()
        self.preferences.append((tuple(sorted(available)), tuple(must_include), size))
        rest = sorted(set(available) - set(must_include))
        return [*must_include, *rest][:size]

    async def allocate(self, devices: Sequence[DeviceId]) -> ContainerAnswer:
        self._maybe_crash()
        self.asked.append(tuple(devices))
        if self.allocate_gate is not None:
            await self.allocate_gate.wait()
        if self.refusal is not None:
            raise self.refusal
        known = {device.id for device in self._devices}
        for device in devices:
            if device not in known:
                raise DeviceUnknown(self.resource, device)
        self.allocated.append(tuple(devices))
        return ContainerAnswer(environment={"NVIDIA_VISIBLE_DEVICES": ",".join(devices)})

    async def pre_start(self, devices: Sequence[DeviceId]) -> None:
        self._maybe_crash()
        if refusal := self.refusal or self.start_refusal:
            raise refusal
        self.started.append(tuple(devices))

    def _maybe_crash(self) -> None:
        if self.crash is not None:
            raise self.crash
