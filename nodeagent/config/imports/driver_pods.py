"""The driver pods of the GPU Operator as values of the chart: a section of a ClusterPolicy, and whole NVIDIADrivers."""

import re
from collections.abc import Mapping
from typing import Final

from msgspec.structs import replace

from nodeagent.config.imports.engine import UNSAID, Imported, Tables, Target, nest, read_flag, translate
from nodeagent.config.sections.repairers import SLOTS_MAX
from nodeagent.model.slots import CLUSTER

_PROBE_KEYS: Final = ("initialDelaySeconds", "periodSeconds", "timeoutSeconds", "failureThreshold")
_GPU_NODES: Final = {"nvidia.com/gpu.present": "true"}
"""The nodes of an NVIDIADriver object without a selector."""
_NO_VGPU: Final = "drivers of virtual GPUs and of their hosts are not served"
_NO_SIDE_MODULES: Final = "driver pods of the chart load no such module: install it on the nodes"
_UPGRADES: Final = "there is one driver.upgrade for all nodes: import the ClusterPolicy, or set it"
_NO_NODE_DRAIN: Final = "pods with GPUs leave, and nobody else: a node is not drained for a driver"
_LEAVING: Final = (
    "each pod with a GPU is asked to leave as its disruption budget allows, also without a controller and with an"
    " emptyDir; repairs.drain says for how long"
)
_NO_WAITING: Final = (
    "no pod is waited for until it ends by itself: the node's label nodeagent.io/driver-upgrade=pause holds an upgrade"
)
_MODE: Final = "driver.upgrade"
_VERSION: Final = re.compile(r"[0-9]+(\.[0-9]+){1,2}")
_NO_MANAGER: Final = "there is no driver manager: a driver pod waits until nobody holds the driver that is loaded"
_MOUNTED: Final = "driver.mounts has the ConfigMap, at the image's directory"
_SYSTEM: Final = "driver.os: the operator reads it from a node: name the system of the nodes there, such as ubuntu24.04"


def _read_pull_secrets(value: object) -> list[dict[str, str]]:
    names = value if isinstance(value, list) else [value]
    return [{"name": str(name)} for name in names]


def _read_probe(value: object) -> object:
    """The numbers of a probe; its threshold of success can be 1 alone."""
    given = value if isinstance(value, Mapping) else {}
    return {key: given[key] for key in _PROBE_KEYS if key in given} or UNSAID


_POD: Final = {
    "repository": Target("repository"),
    "image": Target("image"),
    "version": Target("version", str),
    "imagePullPolicy": Target("pullPolicy"),
    "imagePullSecrets": Target("imagePullSecrets", _read_pull_secrets),
    "usePrecompiled": Target("usePrecompiled", read_flag),
    "kernelModuleType": Target("kernelModuleType"),
    "rdma.enabled": Target("rdma.enabled", read_flag),
    "rdma.useHostMofed": Target("rdma.useHostMofed", read_flag),
    "args": Target("args"),
    "env": Target("env"),
    "secretEnv": Target("secretEnv"),
    "hostNetwork": Target("hostNetwork", read_flag),
    "resources": Target("resources"),
    "startupProbe": Target("startupProbe", _read_probe),
}
"""What both kinds of documents say of a driver pod, and the chart's value for it."""
_POD_REASONS: Final = {
    "useOpenKernelModules": "the operator reads kernelModuleType instead",
    "livenessProbe.*": "a driver that worked at its start is judged by the agent",
    "readinessProbe.*": "a driver that worked at its start is judged by the agent",
    "manager.*": _NO_MANAGER,
    "repoConfig.*": f"{_MOUNTED} of package sources, such as /etc/apt/sources.list.d",
    "certConfig.*": f"{_MOUNTED} of certificates, such as /usr/local/share/ca-certificates",
    "kernelModuleConfig.*": "driver.mounts has each entry of the ConfigMap by subPath, such as /drivers/nvidia.conf",
    "licensingConfig.*": _NO_VGPU,
    "virtualTopology*": _NO_VGPU,
    "gds.*": _NO_SIDE_MODULES,
    "gdrcopy.*": _NO_SIDE_MODULES,
}


def _read_mode(value: object) -> str:
    return "act" if read_flag(value) else "off"


def _read_domains(value: object) -> object:
    """The domain of all nodes; 0 is no limit there, and no domain here."""
    slots = int(str(value))
    if not 0 <= slots <= SLOTS_MAX:
        raise ValueError(f"repairs.slots has 1 to {SLOTS_MAX} slots in a domain")
    return [{"label": CLUSTER, "slots": slots}] if slots else UNSAID


POLICY_TARGETS: Final = {"driver.upgradePolicy.autoUpgrade": Target(_MODE, _read_mode)}
POLICY_VALUES: Final = {
    "driver.upgradePolicy.maxParallelUpgrades": Target("repairs.slots.domains", _read_domains),
    "driver.enabled": Target("driver.enabled", read_flag),
    **{f"driver.{path}": Target(f"driver.{target.key}", target.convert) for path, target in _POD.items()},
}
POLICY_REASONS: Final = {
    "driver.useNvidiaDriverCRD": "the NVIDIADriver objects say which drivers there are: import them too",
    "driver.upgradePolicy.maxUnavailable": "repairs.slots counts nodes that are repaired or upgraded, and no others",
    "driver.upgradePolicy.drain.*": _NO_NODE_DRAIN,
    "driver.upgradePolicy.podDeletion.*": _LEAVING,
    "driver.upgradePolicy.gpuPodDeletion.*": _LEAVING,
    "driver.upgradePolicy.waitForCompletion.*": _NO_WAITING,
    **{f"driver.{path}": reason for path, reason in _POD_REASONS.items()},
}


def _read_type(value: object) -> object:
    if value != "gpu":
        raise ValueError(_NO_VGPU)
    return UNSAID


_OBJECT: Final = Tables(
    targets={},
    values={
        **_POD,
        "driverType": Target("", _read_type),
        "nodeSelector": Target("nodeSelector"),
        "tolerations": Target("tolerations"),
        "priorityClassName": Target("priorityClassName"),
        "labels": Target("podLabels"),
        "annotations": Target("podAnnotations"),
    },
    reasons={
        **_POD_REASONS,
        "upgradePolicy.*": _UPGRADES,
        "default": "a group has the nodes of its own labels, never those that are left over: write nodeSelector",
        "nodeAffinity*": "groups are told apart by nodeSelector alone, so that no two share a node",
        "podSecurityContext*": "the chart's driver pods have the security context that the image needs",
    },
)


def import_driver_object(document: Mapping[str, object]) -> Imported:
    """An NVIDIADriver object, which is a group of nodes of the chart."""
    metadata, spec = (each if isinstance(each := document.get(key), Mapping) else {} for key in ("metadata", "spec"))
    name = str(metadata.get("name", "")).replace(".", "-")
    found = translate(spec, _OBJECT)
    group = {"name": name, "nodeSelector": dict(_GPU_NODES), **nest(found.values)}
    notes = tuple(f"NVIDIADriver {name}, {note}" for note in found.notes)
    return note_system(Imported(values={"driver.enabled": True}, notes=notes, groups=(group,)))


def complete_policy(imported: Imported, policy: Mapping[str, object]) -> Imported:
    """A ClusterPolicy with the settings that an upgrade needs, or the reason why upgrades stay off."""
    return note_system(_complete_upgrade(imported, policy))


def _complete_upgrade(imported: Imported, policy: Mapping[str, object]) -> Imported:
    if imported.settings.get(_MODE) != "act":
        return imported
    driver, version = policy["driver"], str(imported.values.get("driver.version", ""))
    assert isinstance(driver, Mapping)
    if imported.values.get("driver.enabled") is not True:
        why = "it upgrades driver pods alone, and driver.enabled is not true"
    elif str(driver.get("useNvidiaDriverCRD")).lower() == "true":
        why = "the NVIDIADriver objects may name several versions, and driver.wanted_version is one for all nodes"
    elif not _VERSION.fullmatch(version):
        why = f"driver.wanted_version needs a version such as 580.105.08, and driver.version is {version or 'empty'}"
    else:
        wanted = {"driver.wanted_version": version, "driver.installed_by": "container"}
        return replace(imported, settings={**imported.settings, **wanted})
    settings = {key: value for key, value in imported.settings.items() if key != _MODE}
    note = f"driver.upgradePolicy.autoUpgrade: {why}: see docs/driver.md"
    return replace(imported, settings=settings, notes=(*imported.notes, note))


def note_system(imported: Imported) -> Imported:
    """With a note about the one value that no document has, where driver pods are wanted."""
    if imported.values.get("driver.enabled") is not True:
        return imported
    return replace(imported, notes=(*imported.notes, _SYSTEM))
