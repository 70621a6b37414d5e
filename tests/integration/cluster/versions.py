"""Which release each part of a cluster is of. Pure; the releases beside the newest are the folders of `releases/`.

A cluster is of the newest Kubernetes and of containerd 2.3 unless the variable NODEAGENT_CLUSTER_VERSIONS says
otherwise: `kubelet=1.34 emulated=1.34` is a node of 1.34 under a new control plane that serves what 1.34 served.
"""

import dataclasses
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Final, Self

from tests.integration.cluster.errors import UnknownVersion

VARIABLE: Final = "NODEAGENT_CLUSTER_VERSIONS"
MODULE: Final = Path(__file__).resolve().parent
RELEASES: Final = MODULE / "releases"
NEWEST: Final = "newest"
"""The word for the releases that the cluster's own go.mod names."""
CONTAINERD: Final = "2.3"
"""The last release with a switch for CDI, which scenarios turn off."""
CONTROL_PLANE: Final = ("kube-apiserver", "kube-controller-manager", "kube-scheduler", "kubectl")
RUNTIME: Final = ("containerd", "containerd-shim-runc-v2", "ctr")
OLDEST: Final = "kubelet=1.34"
"""The oldest node that Kubernetes allows under the newest control plane, and the oldest that the agent is made for."""
MATRIX: Final = (
    OLDEST,
    "kubelet=1.35",
    "kubelet=1.36",
    "emulated=1.34 kubelet=1.34",
    "emulated=1.35 kubelet=1.35",
    "emulated=1.36 kubelet=1.36",
    "control_plane=1.36 kubelet=1.36",
    "containerd=1.7",
    "containerd=newest",
)
"""Clusters on which the scenarios of every version are run, beside the one that has all scenarios."""
EMULATING: Final = frozenset({"apiserver", "controllers", "scheduler"})


@dataclasses.dataclass(frozen=True, slots=True)
class Versions:
    """The minor release of each part of a cluster."""

    control_plane: str = NEWEST
    emulated: str = ""
    """The minor release whose features and APIs the control plane serves."""
    kubelet: str = NEWEST
    containerd: str = CONTAINERD

    @classmethod
    def parse(cls, text: str) -> Self:
        """The versions that words such as `kubelet=1.34` name.

        Raises:
            UnknownVersion: no part has this name, or no release of this name can be built.
        """
        named = dict(word.partition("=")[::2] for word in text.split())
        parts = [field.name for field in dataclasses.fields(cls)]
        for part, minor in named.items():
            if part not in parts:
                raise UnknownVersion(f"{part}={minor}", f"the parts are {', '.join(parts)}")
        versions = cls(**named)
        for folder in versions.modules.values():
            if not (folder / "go.mod").is_file():
                raise UnknownVersion(text, f"there are {', '.join(list_releases())}")
        return versions

    @classmethod
    def read(cls) -> Self:
        """The versions that this process was told to use."""
        return cls.parse(os.environ.get(VARIABLE, ""))

    def __str__(self) -> str:
        defaults = {field.name: field.default for field in dataclasses.fields(self)}
        return " ".join(f"{name}={at}" for name, at in dataclasses.asdict(self).items() if at != defaults[name])

    @property
    def modules(self) -> Mapping[str, Path]:
        """The Go module of each program that is not of the newest release."""
        chosen = {
            **dict.fromkeys(CONTROL_PLANE, ("kubernetes", self.control_plane)),
            "kubelet": ("kubernetes", self.kubelet),
            **dict.fromkeys(RUNTIME, ("containerd", self.containerd)),
        }
        return {name: RELEASES / f"{part}-{minor}" for name, (part, minor) in chosen.items() if minor != NEWEST}

    def list_flags(self, process: str) -> tuple[str, ...]:
        """What a process of the cluster is told beside its usual flags."""
        return (f"--emulated-version={self.emulated}",) if self.emulated and process in EMULATING else ()


def list_releases() -> tuple[str, ...]:
    """The releases that can be built beside the newest."""
    return tuple(sorted(folder.name for folder in RELEASES.iterdir()))
