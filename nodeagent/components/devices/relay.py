"""The resources of all classes: they are answered for as long as the process lives, whoever looks after them."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Protocol

from nodeagent.components.devices.plugin.component import ClassPlugin
from nodeagent.config.live import LiveSettings
from nodeagent.config.sections.devices import DeviceClass
from nodeagent.model.ids import DeviceId, ResourceName
from nodeagent.model.ports import AllocationJournal, DevicePlugin
from nodeagent.rules.devices.group import name_resource
from nodeagent.rules.devices.prefer import narrow_gpus


class GpuScorer(Protocol):
    """Who knows where devices are."""

    def score_gpus(self, resource: ResourceName) -> Mapping[str, int]:
        """How near each GPU and MIG device is to the devices of the container that asks for this resource now."""
        ...


class ClassesRelay:
    """Implements the port `PluginSource`.

    All resources of the settings are there from the first moment, so that nobody else takes one whose devices are held
    for a resource that is offered no more.
    """

    def __init__(self, live: LiveSettings, journal: AllocationJournal) -> None:
        self._live, self._journal = live, journal
        self.plugins: dict[ResourceName, ClassPlugin] = {}
        self._scorer: GpuScorer | None = None
        self.follow(live.now.devices.classes)

    @contextmanager
    def lead_to(self, scorer: GpuScorer) -> Iterator[None]:
        """Ask this one how near GPUs are to devices for as long as the block lasts."""
        self._scorer = scorer
        try:
            yield
        finally:
            self._scorer = None

    def narrow(
        self, resource: ResourceName, available: Sequence[DeviceId], must_include: Sequence[DeviceId], size: int
    ) -> Sequence[DeviceId]:
        """Those of these GPUs that are nearest to the devices which the same container was just given."""
        near = self._scorer.score_gpus(resource) if self._scorer is not None else {}
        return narrow_gpus(available, must_include, size, near)

    def follow(self, classes: Iterable[DeviceClass]) -> None:
        """Have a plugin for each of these classes and for no other."""
        wanted = [name_resource(each) for each in classes]
        for name in self.plugins.keys() - set(wanted):
            del self.plugins[name]
        for name in wanted:
            if name not in self.plugins:
                self.plugins[name] = ClassPlugin(name, self._live, self._journal)

    def list_plugins(self) -> Mapping[ResourceName, DevicePlugin]:
        """Who answers for which resource."""
        return self.plugins
