"""The specifications of single containers with fractions of a class's devices; a helper of the component `devices`.

Refuses a device that is not there: the specification would name nodes that container runtimes cannot find.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence

from msgspec.structs import replace

from nodeagent.config.live import LiveSettings
from nodeagent.config.sections.devices import DeviceClass
from nodeagent.edge.host.files.cdi_files import SpecFiles
from nodeagent.model.devices import HostDevice, HostDevices, Standing
from nodeagent.model.errors import DeviceUnhealthy, RequestInvalid
from nodeagent.model.ids import GpuUuid
from nodeagent.model.plugin import ContainerMount
from nodeagent.rules.cdi_names import DEVICE_FRACTION_FILES, name_device_fraction_file
from nodeagent.rules.devices.answer import find_clash, plan_answer, render_fraction_spec
from nodeagent.rules.devices.group import list_extra_nodes, name_resource, parse_id


class ClassFractionSpecs:
    """Implements the port `DeviceFractionSpecs`."""

    def __init__(
        self,
        live: LiveSettings,
        specs: SpecFiles,
        find_host: Callable[[], HostDevices],
        list_devices: Callable[[], Iterable[HostDevice]],
    ) -> None:
        self._live, self._specs, self._find_host, self._list_devices = live, specs, find_host, list_devices

    async def write_fraction(
        self,
        names: tuple[str, ...],
        gpus: Sequence[GpuUuid],
        mounts: Sequence[ContainerMount],
        environment: Mapping[str, str],
    ) -> None:
        """Write the specification of a single container; the port's contract is in `model.ports`."""
        device_class, devices = self._find(gpus)
        if clash := find_clash(device_class, devices):
            raise RequestInvalid(name_resource(device_class), clash)
        extra_nodes = list_extra_nodes(device_class, self._find_host())
        answer = plan_answer(device_class, devices, extra_nodes, by_name=False)
        told = replace(answer, mounts=(*answer.mounts, *mounts), environment={**answer.environment, **environment})
        content = render_fraction_spec(names, told)
        await self._specs.write_spec(name_device_fraction_file(names[0]), content, durable=False)

    async def remove_fraction(self, name: str) -> None:
        """Remove the specification of a single container; the port's contract is in `model.ports`."""
        await self._specs.remove_spec(name_device_fraction_file(name))

    async def list_fractions(self) -> tuple[str, ...]:
        """The first CDI name in each specification; the port's contract is in `model.ports`."""
        files = await self._specs.list_passing()
        return tuple(file.removeprefix(DEVICE_FRACTION_FILES).removesuffix(".json") for file in files)

    def _find(self, gpus: Sequence[GpuUuid]) -> tuple[DeviceClass, tuple[HostDevice, ...]]:
        """The class of these devices, and the devices."""
        known = {str(device.id): device for device in self._list_devices() if device.standing is not Standing.GONE}
        for gpu in gpus:
            if gpu not in known:
                raise DeviceUnhealthy(gpu, "it is not on this node any more")
        classes = self._live.now.devices.classes
        found = next((each for each in classes if parse_id(gpus[0], name_resource(each)) is not None), None)
        if found is None:
            raise DeviceUnhealthy(gpus[0], "its class is not in `devices.classes` any more")
        return found, tuple(known[gpu] for gpu in gpus)
