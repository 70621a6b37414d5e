"""What is to be built: read from go.mod, which alone says which programs in which versions make up the cluster.

Pure: text in, plan out. Running the plan is `build.py`.
"""

import dataclasses
import hashlib
import re
from collections.abc import Mapping
from typing import Final

# Where each module keeps the version its programs report. An unstamped API server calls itself v0.0.0, and software
# that chooses its behaviour by the server's version then takes the oldest path.
STAMPS: Final[Mapping[str, tuple[str, ...]]] = {
    "k8s.io/kubernetes": ("k8s.io/component-base/version.gitVersion", "k8s.io/client-go/pkg/version.gitVersion"),
    "go.etcd.io/etcd/server/v3": ("go.etcd.io/etcd/api/v3/version.GitSHA",),
    "github.com/containerd/containerd": ("github.com/containerd/containerd/version.Version",),
    "github.com/containerd/containerd/v2": ("github.com/containerd/containerd/v2/version.Version",),
    "sigs.k8s.io/cri-tools": ("sigs.k8s.io/cri-tools/pkg/version.Version",),
}
GO_ENVIRONMENT: Final[Mapping[str, str]] = {"CGO_ENABLED": "0", "GOWORK": "off"}
BUILD_FLAGS: Final = ("-trimpath", "-buildvcs=false", "-mod=readonly")


@dataclasses.dataclass(frozen=True, slots=True)
class Program:
    """One main package and the file it becomes."""

    name: str
    package: str
    module: str
    version: str


@dataclasses.dataclass(frozen=True, slots=True)
class BuildPlan:
    """All programs in building order, with the flags they share and the key their cache entry has."""

    programs: tuple[Program, ...]
    flags: tuple[str, ...]
    key: str


def plan_build(go_mod: str, go_sum: str, go_version: str) -> BuildPlan:
    """The plan that these lock files and this tool chain ask for; equal inputs give an equal key."""
    programs = parse_programs(go_mod)
    flags = (*BUILD_FLAGS, f"-ldflags={render_linker_flags(programs)}")
    key = hashlib.sha256("\0".join((go_mod, go_sum, go_version, *flags, repr(GO_ENVIRONMENT))).encode()).hexdigest()[
        :16
    ]
    return BuildPlan(programs, flags, key)


def parse_programs(go_mod: str) -> tuple[Program, ...]:
    """The `tool` lines of go.mod, each with the module it comes from and that module's pinned version."""
    versions = dict(re.findall(r"^(?:require)?\s+(\S+\.\S+) (v\S+)(?: // indirect)?$", go_mod, re.MULTILINE))
    block = re.search(r"^tool (?:\((.*?)^\)|(\S+)$)", go_mod, re.MULTILINE | re.DOTALL)
    packages = "".join(filter(None, block.groups())).split() if block else []
    return tuple(describe_program(package, versions) for package in packages)


def describe_program(package: str, versions: Mapping[str, str]) -> Program:
    """The program a package builds, e.g. etcd from the root package of its server module."""
    module = max((name for name in versions if f"{package}/".startswith(f"{name}/")), key=len)
    name = "etcd" if package == "go.etcd.io/etcd/server/v3" else package.rpartition("/")[2]
    return Program(name, package, module, versions[module])


def render_linker_flags(programs: tuple[Program, ...]) -> str:
    """Strip symbols, stamp every program with its version; the same for all, so that they share compiled packages."""
    values = {stamp: each.version for each in programs for stamp in STAMPS.get(each.module, ())}
    for each in programs:
        if each.module == "k8s.io/kubernetes":
            major, minor = each.version.removeprefix("v").split(".")[:2]
            values["k8s.io/component-base/version.gitMajor"] = major
            values["k8s.io/component-base/version.gitMinor"] = minor
            values["k8s.io/component-base/version.gitTreeState"] = "clean"
    return " ".join(("-s -w", *(f"-X {name}={value}" for name, value in sorted(values.items()))))
