"""All settings of the agent, in one frozen object passed explicitly.

    settings.http.listen    settings.kubelet.device_plugins_dir    settings.sharing.timeSlicing

Every setting is declared once, in `sections`, the source of the reference page too.
Owns the list of sections, and the list of sections without code behind; reads no files.
"""

from typing import TypeVar

from nodeagent.config.compound import Nested
from nodeagent.config.knobs import Section, knob
from nodeagent.config.sections.agent import (
    HttpSettings,
    LogSettings,
    NodeSettings,
    ShutdownSettings,
    SupervisorSettings,
)
from nodeagent.config.sections.allocation_modes import AllocationModeSettings
from nodeagent.config.sections.claims import ClaimsSettings
from nodeagent.config.sections.cluster import KubernetesSettings, LabelsSettings, MetricsSettings, SignalsSettings
from nodeagent.config.sections.containers import CdiSettings, ContainersSettings, RuntimeSettings
from nodeagent.config.sections.devices import DevicesSettings
from nodeagent.config.sections.extender import ExtenderSettings
from nodeagent.config.sections.fractions import FractionsSettings
from nodeagent.config.sections.hardware import (
    DriverSettings,
    GpusSettings,
    HealthSettings,
    InventorySettings,
    ProofSettings,
    RepairsSettings,
)
from nodeagent.config.sections.mig import MigSettings
from nodeagent.config.sections.mps import MpsSettings
from nodeagent.config.sections.plugin import DevicePluginSettings, JournalSettings, KubeletSettings
from nodeagent.config.sections.sharing import ResourcesSettings, SharingSettings
from nodeagent.config.sections.shim import ShimSettings

S = TypeVar("S", bound=Section)


def _section(kind: type[S]) -> S:
    """A section with its defaults, described by the docstring of its class."""
    return knob(Nested(kind), kind(), (kind.__doc__ or "").strip())


class Settings(Section):
    """All settings."""

    node: NodeSettings = _section(NodeSettings)
    log: LogSettings = _section(LogSettings)
    http: HttpSettings = _section(HttpSettings)
    gpus: GpusSettings = _section(GpusSettings)
    driver: DriverSettings = _section(DriverSettings)
    inventory: InventorySettings = _section(InventorySettings)
    health: HealthSettings = _section(HealthSettings)
    repairs: RepairsSettings = _section(RepairsSettings)
    proof: ProofSettings = _section(ProofSettings)
    kubelet: KubeletSettings = _section(KubeletSettings)
    doors: AllocationModeSettings = _section(AllocationModeSettings)
    mig: MigSettings = _section(MigSettings)
    fractions: FractionsSettings = _section(FractionsSettings)
    devices: DevicesSettings = _section(DevicesSettings)
    claims: ClaimsSettings = _section(ClaimsSettings)
    device_plugin: DevicePluginSettings = _section(DevicePluginSettings)
    sharing: SharingSettings = _section(SharingSettings)
    mps: MpsSettings = _section(MpsSettings)
    resources: ResourcesSettings = _section(ResourcesSettings)
    journal: JournalSettings = _section(JournalSettings)
    containers: ContainersSettings = _section(ContainersSettings)
    cdi: CdiSettings = _section(CdiSettings)
    runtime: RuntimeSettings = _section(RuntimeSettings)
    shim: ShimSettings = _section(ShimSettings)
    labels: LabelsSettings = _section(LabelsSettings)
    kubernetes: KubernetesSettings = _section(KubernetesSettings)
    signals: SignalsSettings = _section(SignalsSettings)
    metrics: MetricsSettings = _section(MetricsSettings)
    extender: ExtenderSettings = _section(ExtenderSettings)
    supervisor: SupervisorSettings = _section(SupervisorSettings)
    shutdown: ShutdownSettings = _section(ShutdownSettings)

    @property
    def gives_fractions(self) -> bool:
        """Whether anything is given in fractions: GPUs, or devices of a class."""
        return self.fractions.enabled or bool(self.devices.divisible)

    @property
    def uses_mps(self) -> bool:
        """Whether a setting asks for MPS daemons: sharing, claims, or fractions."""
        parts = self.fractions.enabled and self.fractions.enforcement == "mps"
        return parts or self.mps.claims or self.sharing.mps is not None
