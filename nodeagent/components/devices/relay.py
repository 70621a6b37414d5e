"""The resources of all classes, served as long as the process lives, over restarts of the component."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Protocol

from nodeagent.components.devices.plugin_task import ClassPlugin
from nodeagent.config.live import LiveSettings
from nodeagent.config.sections.devices import DeviceClass
from nodeagent.model.ids import DeviceId, ResourceName
from nodeagent.model.ports import AllocationJournal, DevicePlugin
from nodeagent.rules.devices.group import name_resource
from nodeagent.rules.devices.prefer import narrow_gpus


class GpuScorer(Protocol):
    """Scores GPUs by their distance to devices."""

    def score_gpus(self, resource: ResourceName) -> Mapping[str, int]:
        """How near each GPU and MIG device is to the devices of the container now asking for the resource."""
        ...


class ClassesRelay:
    """Implements the port `PluginSource`.

    All resources of the settings are present from the first moment, so that the device plugin takes none of them, with
    devices still held, for a resource that is offered no more.
    """

    def __init__(self, live: LiveSettings, journal: AllocationJournal) -> None:
        self._live, self._journal = live, journal
        self.plugins: dict[ResourceName, ClassPlugin] = {}
        self._scorer: GpuScorer | None = None
        self.follow(live.now.devices.classes)

    @contextmanager
    def lead_to(self, scorer: GpuScorer) -> Iterator[None]:
        """Use a scorer of GPUs for as long as the block lasts."""
        self._scorer = scorer
        try:
            yield
        finally:
            self._scorer = None

    def narrow(
        self, resource: ResourceName, available: Sequence[DeviceId], must_include: Sequence[DeviceId], size: int
    ) -> Sequence[DeviceId]:
        """The available GPUs nearest to the devices just given to the same container."""
        near = self._scorer.score_gpus(resource) if self._scorer is not None else {}
        return narrow_gpus(available, must_include, size, near)

    def follow(self, classes: Iterable[DeviceClass]) -> None:
        """Keep a plugin for each of the classes and for no other."""
        wanted = [name_resource(each) for each in classes]
        for name in self.plugins.keys() - set(wanted):
            del self.plugins[name]
        for name in wanted:
            if name not in self.plugins:
                self.plugins[name] = ClassPlugin(name, self._live, self._journal)

    def list_plugins(self) -> Mapping[ResourceName, DevicePlugin]:
        """The plugin of each resource."""
        return self.plugins
