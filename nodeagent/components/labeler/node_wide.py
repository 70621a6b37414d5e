"""Labels about the node's driver and devices as a whole: versions, capabilities, machine, mode, fabric, vGPU, health.

Owns the keys, in the old spelling and the new, and the value rules of GPU feature discovery.
"""

from collections.abc import Iterable, Iterator, Sequence

from nodeagent.components.labeler.values import plan_value
from nodeagent.config.sections.devices import DeviceClass
from nodeagent.model.cluster import DEVICE_PREFIX
from nodeagent.model.devices import DeviceTable
from nodeagent.model.driver import DriverState
from nodeagent.model.gpu import FabricPhase, Gpu
from nodeagent.model.health import HealthReport, Verdict
from nodeagent.model.labels import NodeFacts
from nodeagent.model.nvidia import LABEL_PREFIX

Label = tuple[str, str]

PREFIX = LABEL_PREFIX
UNKNOWN = "unknown"
_MODES = {"0300": "graphics", "0302": "compute"}


def label_driver(driver: DriverState) -> Iterator[Label]:
    """The driver's version and its highest CUDA version; numbers are text, so that `01` keeps the zero."""
    if driver.driver_version:
        major, minor, revision = (*driver.driver_version.split(".", 2), "", "")[:3]
        for spelling, last in (("cuda.driver", "rev"), ("cuda.driver-version", "revision")):
            yield f"{PREFIX}{spelling}.major", major
            yield f"{PREFIX}{spelling}.minor", minor
            yield f"{PREFIX}{spelling}.{last}", revision
        yield f"{PREFIX}cuda.driver-version.full", driver.driver_version
    if driver.cuda_version is not None:
        cuda_major, cuda_minor = map(str, driver.cuda_version)
        for spelling in ("cuda.runtime", "cuda.runtime-version"):
            yield f"{PREFIX}{spelling}.major", cuda_major
            yield f"{PREFIX}{spelling}.minor", cuda_minor
        yield f"{PREFIX}cuda.runtime-version.full", f"{cuda_major}.{cuda_minor}"


def label_node(gpus: Sequence[Gpu], facts: NodeFacts) -> Iterator[Label]:
    """Labels about all GPUs together, for a node with GPUs."""
    yield f"{PREFIX}gpu.machine", plan_value(facts.machine_type) or UNKNOWN
    yield f"{PREFIX}gpu.mode", _find_mode(gpus, facts)
    yield f"{PREFIX}mig.capable", str(any(gpu.mig is not None for gpu in gpus)).lower()
    clique = _find_clique(gpus)
    if clique:
        yield f"{PREFIX}gpu.clique", clique


def label_vgpu(facts: NodeFacts) -> Iterator[Label]:
    """Whether the node is a guest with vGPUs; no label where the PCI bus does not show that."""
    if facts.vgpu is None:
        return
    yield f"{PREFIX}vgpu.present", str(facts.vgpu.present).lower()
    if facts.vgpu.present:
        yield f"{PREFIX}vgpu.host-driver-version", plan_value(facts.vgpu.host_driver_version)
        yield f"{PREFIX}vgpu.host-driver-branch", plan_value(facts.vgpu.host_driver_branch)


def _find_mode(gpus: Sequence[Gpu], facts: NodeFacts) -> str:
    classes = {function.address: function.pci_class for function in facts.functions}
    modes = {_MODES.get(classes.get(gpu.pci.address, ""), UNKNOWN) for gpu in gpus}
    return modes.pop() if len(modes) == 1 else UNKNOWN


def _find_clique(gpus: Sequence[Gpu]) -> str:
    """The fabric clique of all attached GPUs; `None` without attached GPUs or with several cliques."""
    cliques = {
        f"{gpu.fabric.cluster_uuid.lower()}.{gpu.fabric.clique_id}"
        for gpu in gpus
        if gpu.fabric is not None
        and gpu.fabric.phase is FabricPhase.COMPLETED
        and gpu.fabric.status_code == 0
        and gpu.fabric.has_place
    }
    return cliques.pop() if len(cliques) == 1 else ""


def label_devices(table: DeviceTable | None, classes: Iterable[DeviceClass]) -> Iterator[Label]:
    """The number of working devices, including 0: a removed label would not show a device that broke."""
    counts: dict[str, int] = {each.resource: each.healthy_count for each in table.classes} if table is not None else {}
    for each in classes:
        if each.label is not None and each.resource in counts:
            yield f"{DEVICE_PREFIX}{each.label}", str(counts[each.resource])


HEALTHY = f"{PREFIX}gpu.healthy.count"
UNHEALTHY = f"{PREFIX}gpu.unhealthy.count"
UNKNOWN_COUNT = f"{PREFIX}gpu.unknown.count"
COUNTS = (HEALTHY, UNHEALTHY, UNKNOWN_COUNT)
_GOOD = frozenset({Verdict.HEALTHY, Verdict.SUSPECT})


def label_health(gpus: Sequence[Gpu], report: HealthReport | None) -> Iterator[Label]:
    """The numbers of healthy, unhealthy and unknown GPUs; no labels before the first health report."""
    if report is None:
        return
    verdicts: dict[str, set[Verdict]] = {gpu.uuid: set() for gpu in gpus}
    for device in report.devices:
        verdicts.setdefault(device.gpu, set()).add(device.verdict)
    judged = [verdicts[gpu.uuid] | ({Verdict.UNHEALTHY} if gpu.lost else set()) for gpu in gpus]
    healthy = sum(bool(each) and each <= _GOOD for each in judged)
    unhealthy = sum(Verdict.UNHEALTHY in each for each in judged)
    yield from zip(COUNTS, map(str, (healthy, unhealthy, len(gpus) - healthy - unhealthy)), strict=True)
