"""The edges to the kubelet, joined: kubelet state, and device plugins."""

from collections.abc import Awaitable, Callable, Mapping, Sequence
from pathlib import Path

from nodeagent.app.host_root import find_driver_roots
from nodeagent.app.services import Services
from nodeagent.components.allocations.component import Allocations
from nodeagent.components.allocations.journal_task import Journal
from nodeagent.components.allocations.ledger import Node
from nodeagent.components.deviceplugin.component import DevicePlugins, OtherResources
from nodeagent.components.deviceplugin.plugin_task import Narrow, narrow_nothing
from nodeagent.components.fractions.plugin_task import FractionPlugins
from nodeagent.config.schema import Settings
from nodeagent.core.durations import Durations
from nodeagent.core.log.lines import get_logger
from nodeagent.edge.host.devices.handout import HandoutReader
from nodeagent.edge.host.files.journal_disk import JournalDisk, JournalTally
from nodeagent.edge.host.files.sealed_store import read_boot_id
from nodeagent.edge.kubelet.call_times import CallTimes
from nodeagent.edge.kubelet.kubelet_state import KubeletState
from nodeagent.edge.kubelet.plugin_session import PluginSession
from nodeagent.edge.kubelet.pods_api import KubeletPods
from nodeagent.edge.kubelet.registry_session import RegistrySession
from nodeagent.model.ids import ResourceName
from nodeagent.model.plugin import AdmissionFacts, AdvertisedResource, CallFacts, Distribution, HandoutFacts
from nodeagent.model.ports import DevicePlugin, PluginSource
from nodeagent.model.vendor import Vendor

MACHINE_ID = "etc/machine-id"


class JoinedSources:
    """The resources of several components; implements the port `PluginSource`."""

    def __init__(self, sources: Sequence[PluginSource]) -> None:
        self._sources = sources

    def list_plugins(self) -> Mapping[ResourceName, DevicePlugin]:
        """The device plugin of each resource."""
        return {name: plugin for each in self._sources for name, plugin in each.list_plugins().items()}


class KubeletWiring:
    """Builds the two components that serve the kubelet, and holds objects outliving a restart of either."""

    def __init__(self, services: Services, node_name: str, vendor: Vendor) -> None:
        self._services, self._live, self._vendor = services, services.live, vendor
        settings = self._live.now
        self.account = KubeletState(settings.kubelet.device_plugins_dir, settings.kubelet.pod_resources_socket)
        self._handout = HandoutReader(proc_dir=settings.node.proc_dir, vendor=vendor)
        self._log = get_logger(component=DevicePlugins.name)
        self._journal_tally, self.call_times = JournalTally(), CallTimes()
        node = settings.node
        self.journal = Journal(
            *services,
            self.account,
            open_store=lambda: JournalDisk(node.state_dir, tally=self._journal_tally),
            read_node=lambda: Node(read_machine_id(node.host_root, node_name), read_boot_id(node.proc_dir)),
        )
        self.fractions = FractionPlugins()
        self.sources: list[PluginSource] = [self.fractions]
        """Plugins of resources beside the device plugin's own."""
        self.narrow: Narrow = narrow_nothing
        """Which GPUs are near to a container's other devices."""

    def close(self) -> None:
        """End threads and connections."""
        self.account.close()
        self._handout.close()

    def build_allocations(self) -> Allocations:
        """The component that tends the journal."""
        return Allocations(*self._services, self.journal, pods=KubeletPods(self._live.now.kubelet.pods_api_socket))

    async def identify_holders(self) -> None:
        """Have the journal ask the kubelet for the holders of all devices, while the journal is tended."""
        if (compare := self.journal.tended.value) is not None:
            await compare()

    def read_admission(self) -> AdmissionFacts:
        """Timings of calls awaited by pods since the process began."""
        tally = self._journal_tally
        return AdmissionFacts(
            calls=tuple(
                CallFacts(
                    method=call.method, resource=call.resource, outcome=call.outcome, durations=_distribution(durations)
                )
                for call, durations in sorted(self.call_times.times.items())
            ),
            journal_writes=tally.writes,
            journal_failures=tally.failures,
            journal_syncs=_distribution(tally.syncs),
        )

    def build_plugins(self, wait_for_gpus: Callable[[], Awaitable[None]] | None = None) -> DevicePlugins:
        """The device plugin; with other resources configured, GPUs are not waited for at its start."""
        bus, conditions, _, live = self._services
        return DevicePlugins(
            bus,
            conditions,
            live,
            self.journal,
            serve=self._serve,
            read_facts=self._read_facts,
            others=OtherResources(JoinedSources(self.sources), self.narrow, wait_for_gpus),
        )

    async def _serve(self, plugin: DevicePlugin, endpoint: str, report: Callable[[AdvertisedResource], None]) -> None:
        kubelet = self._live.now.kubelet
        if kubelet.plugins_registry_dir is not None:
            await RegistrySession(
                plugin,
                kubelet.device_plugins_dir / endpoint,
                kubelet.plugins_registry_dir / endpoint,
                report=report,
                report_crash=self.note_crash,
                times=self.call_times,
            ).run()
            return
        await PluginSession(
            plugin,
            kubelet.device_plugins_dir,
            endpoint,
            report=report,
            report_crash=self.note_crash,
            times=self.call_times,
            read_allocatable=self.account.read_allocatable,
        ).run()

    def note_crash(self, path: str, error: Exception) -> None:
        """Log an unforeseen failure of a call of the kubelet."""
        self._log.exception("kubelet_call_failed", error, call=path)

    async def _read_facts(self, settings: Settings) -> HandoutFacts:
        if settings.gpus.simulated_profile is not None:
            # Made-up GPUs have no device nodes to give to a container.
            return HandoutFacts(vendor=self._vendor)
        # The same device nodes as in CDI specifications: a root without a `dev` has the host's.
        channels = settings.device_plugin.imex_channel_ids
        return await self._handout.read(lambda: find_driver_roots(settings), channels)


def _distribution(durations: Durations) -> Distribution:
    return Distribution(bounds=durations.bounds_seconds, counts=durations.counts, sum=durations.sum_seconds)


def read_machine_id(host_root: Path, node_name: str) -> str:
    """The id of this machine; the node's name on machines without an id.

    Never the agent's own host name: a pod's host name is new with each pod, and the journal would be taken for another
    machine's.
    """
    try:
        return (host_root / MACHINE_ID).read_text().strip() or node_name
    except OSError:
        return node_name
