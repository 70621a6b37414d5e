"""All settings of the agent, under one frozen object that is passed explicitly.

    settings.http.listen    settings.kubelet.device_plugins_dir    settings.sharing.timeSlicing

What each one is, takes and means is declared once, in `sections`; the reference page is made from there.
Owns the list of sections and which of them belong to parts that do not exist yet; reads nothing.
"""

from typing import Final, TypeVar

from nodeagent.config.compound import Nested
from nodeagent.config.knobs import Section, knob
from nodeagent.config.sections.agent import (
    HttpSettings,
    LogSettings,
    NodeSettings,
    ShutdownSettings,
    SupervisorSettings,
)
from nodeagent.config.sections.claims import ClaimsSettings
from nodeagent.config.sections.cluster import KubernetesSettings, LabelsSettings, MetricsSettings
from nodeagent.config.sections.containers import CdiSettings, RuntimeSettings
from nodeagent.config.sections.devices import DevicesSettings
from nodeagent.config.sections.doors import DoorsSettings
from nodeagent.config.sections.extender import ExtenderSettings
from nodeagent.config.sections.fractions import FractionsSettings
from nodeagent.config.sections.hardware import DriverSettings, GpusSettings, HealthSettings, InventorySettings
from nodeagent.config.sections.mig import MigSettings
from nodeagent.config.sections.mps import MpsSettings
from nodeagent.config.sections.plugin import DevicePluginSettings, JournalSettings, KubeletSettings
from nodeagent.config.sections.sharing import ResourcesSettings, SharingSettings
from nodeagent.config.sections.shim import ShimSettings

S = TypeVar("S", bound=Section)

# Sections whose part is still to be built: they are read and judged like all others, and whoever sets something in
# them is told that nothing comes of it yet. A part that lands takes its name off this list.
NOT_BUILT: Final[frozenset[str]] = frozenset()


def _section(kind: type[S]) -> S:
    """A section with its defaults; its own docstring says what it is."""
    return knob(Nested(kind), kind(), (kind.__doc__ or "").strip())


class Settings(Section):
    """Everything that can be set."""

    node: NodeSettings = _section(NodeSettings)
    log: LogSettings = _section(LogSettings)
    http: HttpSettings = _section(HttpSettings)
    gpus: GpusSettings = _section(GpusSettings)
    driver: DriverSettings = _section(DriverSettings)
    inventory: InventorySettings = _section(InventorySettings)
    health: HealthSettings = _section(HealthSettings)
    kubelet: KubeletSettings = _section(KubeletSettings)
    doors: DoorsSettings = _section(DoorsSettings)
    mig: MigSettings = _section(MigSettings)
    fractions: FractionsSettings = _section(FractionsSettings)
    devices: DevicesSettings = _section(DevicesSettings)
    claims: ClaimsSettings = _section(ClaimsSettings)
    device_plugin: DevicePluginSettings = _section(DevicePluginSettings)
    sharing: SharingSettings = _section(SharingSettings)
    mps: MpsSettings = _section(MpsSettings)
    resources: ResourcesSettings = _section(ResourcesSettings)
    journal: JournalSettings = _section(JournalSettings)
    cdi: CdiSettings = _section(CdiSettings)
    runtime: RuntimeSettings = _section(RuntimeSettings)
    shim: ShimSettings = _section(ShimSettings)
    labels: LabelsSettings = _section(LabelsSettings)
    kubernetes: KubernetesSettings = _section(KubernetesSettings)
    metrics: MetricsSettings = _section(MetricsSettings)
    extender: ExtenderSettings = _section(ExtenderSettings)
    supervisor: SupervisorSettings = _section(SupervisorSettings)
    shutdown: ShutdownSettings = _section(ShutdownSettings)

    @property
    def uses_mps(self) -> bool:
        """Whether anything asks for MPS daemons: shares, claims, or parts of GPUs."""
        parts = self.fractions.enabled and self.fractions.enforcement == "mps"
        return parts or self.mps.claims or self.sharing.mps is not None
