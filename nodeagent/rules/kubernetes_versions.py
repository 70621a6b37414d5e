"""The abilities of Kubernetes that the agent uses, by minor version, and the parts of a node that are coming to an end.

Owns THE table of both: `docs/installation.md` is generated from it, and `nodeagent doctor` compares a node with it.
Refuses to guess whether a feature gate was switched on by hand: no version tells.
"""

import re
from collections.abc import Callable, Iterator
from typing import Final, Literal, NamedTuple

from nodeagent.config.schema import Settings
from nodeagent.model.runtime import RuntimeKind

Side = Literal["API server", "kubelet"]

MINORS: Final = (33, 34, 35, 36, 37)
"""The minor versions of the table; later versions have what the last one has."""
_VERSION: Final = re.compile(r"v?1\.(\d+)")


class Ability(NamedTuple):
    """Something that an API server or a kubelet can do from a minor version on."""

    name: str
    side: Side
    on_from: int
    """The first minor version with the ability, where nothing is switched on by hand."""
    without: str
    """The agent's way where the ability is missing."""
    setting: str = ""
    """The setting that needs the ability; empty where the agent does as well without."""
    is_wanted: Callable[[Settings], bool] = lambda _: False
    gate: str = ""
    """The feature gate; empty where there is none."""
    gate_from: int = 0
    """The first minor version in which the gate brings the ability in the form that the agent uses."""
    is_essential: bool = False
    """Whether the setting has no effect at all without the ability."""

    def tell(self, minor: int) -> str:
        """The cell of the table: `on`, `off` where the feature gate is to be switched on, or `no`."""
        if minor >= self.on_from:
            return "on"
        return "off" if self.gate and minor >= self.gate_from else "no"


class Ending(NamedTuple):
    """Something on a node that a later kubelet takes no longer."""

    name: str
    cells: tuple[str, ...]
    """A cell of the table for each of `MINORS`."""
    end: str
    """When and how it ends."""
    remedy: str


class Lack(NamedTuple):
    """An ability that the settings need and a version does not have by itself."""

    ability: Ability
    version: str
    is_gated: bool
    """Whether a feature gate brings the ability in this version."""


ABILITIES: Final = (
    Ability(
        name="`resource.k8s.io/v1`",
        side="API server",
        on_from=34,
        without="publishes no device and prepares no claim",
        is_essential=True,
        setting="claims.enabled",
        is_wanted=lambda settings: settings.claims.enabled,
    ),
    Ability(
        name="drivers of claims",
        side="kubelet",
        on_from=34,
        gate="DynamicResourceAllocation",
        gate_from=33,
        without="is not called: pods with claims do not start",
        is_essential=True,
        setting="claims.enabled",
        is_wanted=lambda settings: settings.claims.enabled,
    ),
    Ability(
        name="claims in the kubelet's podresources",
        side="kubelet",
        on_from=34,
        gate="KubeletPodResourcesDynamicResources",
        gate_from=33,
        without="asks the API server about each prepared claim, and metrics name no container of a claim",
        setting="claims.enabled",
        is_wanted=lambda settings: settings.claims.enabled,
    ),
    Ability(
        name="health of claimed devices in a pod's status",
        side="kubelet",
        on_from=36,
        gate="ResourceHealthStatus",
        gate_from=34,
        without="tells health by conditions, events and metrics alone",
        setting="claims.enabled",
        is_wanted=lambda settings: settings.claims.enabled,
    ),
    Ability(
        name="taints of devices",
        side="API server",
        on_from=36,
        gate="DRADeviceTaints",
        gate_from=34,
        without="leaves out a device that is not well",
        setting="claims.enabled",
        is_wanted=lambda settings: settings.claims.enabled,
    ),
    Ability(
        name="counters in slices of their own",
        side="API server",
        on_from=36,
        gate="DRAPartitionableDevices",
        gate_from=35,
        without="offers GPUs as they are cut",
        setting="claims.mig_on_demand",
        is_wanted=lambda settings: settings.claims.enabled and settings.claims.mig_on_demand,
    ),
    Ability(
        name="devices for several claims",
        side="API server",
        on_from=36,
        gate="DRAConsumableCapacity",
        gate_from=34,
        without="gives a GPU to one claim",
        setting="claims.shares",
        is_wanted=lambda settings: settings.claims.enabled and settings.claims.shares,
    ),
    Ability(
        name="waiting for a device before a pod is bound",
        side="API server",
        on_from=36,
        gate="DRADeviceBindingConditions",
        gate_from=34,
        without="has pods bound without a proof of their GPUs",
        setting="proof.before_binding",
        is_wanted=lambda settings: settings.claims.enabled and settings.proof.before_binding != "off",
        is_essential=True,
    ),
    Ability(
        name="claims made for a resource name",
        side="API server",
        on_from=36,
        gate="DRAExtendedResource",
        gate_from=34,
        without="serves pods that ask for `nvidia.com/gpu` by the device plugin alone",
    ),
    Ability(
        name="changes of pods from the kubelet",
        side="kubelet",
        on_from=37,
        gate="PodsAPI",
        gate_from=36,
        without="learns of the end of a pod from lists of devices alone, half a minute later",
    ),
    Ability(
        name="lists by a watch",
        side="API server",
        on_from=34,
        gate="WatchList",
        gate_from=33,
        without="lists, and watches from there",
    ),
)
"""In the order of the table."""

CONTAINERD_1: Final = Ending(
    name="containerd 1.7",
    cells=("yes", "yes", "yes", "yes", "yes"),
    end="kubelet 1.37 is the last one to take it",
    remedy="move the node to containerd 2 before its kubelet to a later version",
)
CGROUP_V1: Final = Ending(
    name="cgroup v1",
    cells=("yes", "yes", "by setting", "by setting", "by setting"),
    end="kubelets from 1.35 start there only with `failCgroupV1: false`",
    remedy="boot the node with the unified cgroup hierarchy (systemd.unified_cgroup_hierarchy=1)",
)
ENDINGS: Final = (CONTAINERD_1, CGROUP_V1)
_FIRST_KEPT: Final = (2, 0)
"""The first release of containerd that later kubelets take."""


def read_minor(version: str) -> int | None:
    """The minor version of a version such as v1.36.3 or v1.34.2+k3s1; `None` for anything else."""
    found = _VERSION.match(version)
    return int(found[1]) if found else None


def list_wanted(settings: Settings) -> tuple[str, ...]:
    """The names of the abilities that the settings need."""
    return tuple(ability.name for ability in ABILITIES if ability.is_wanted(settings))


def find_endings(runtime: RuntimeKind | None, release: tuple[int, int], *, has_cgroup_v1: bool) -> Iterator[Ending]:
    """What a node has that later kubelets take no longer; a runtime of unknown release is kept."""
    if runtime is RuntimeKind.CONTAINERD and (0, 0) < release < _FIRST_KEPT:
        yield CONTAINERD_1
    if has_cgroup_v1:
        yield CGROUP_V1


def find_lacks(wanted: tuple[str, ...], versions: dict[Side, str]) -> Iterator[Lack]:
    """The wanted abilities that are missing or not on by default; a side of unknown version lacks nothing."""
    for ability in ABILITIES:
        version = versions.get(ability.side, "")
        minor = read_minor(version)
        if ability.name in wanted and minor is not None and minor < ability.on_from:
            yield Lack(ability, version, ability.tell(minor) == "off")
