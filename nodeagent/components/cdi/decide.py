"""The files to write and to remove, so that the directories have the wanted specifications; and reports for people.

Owns the rule about public kinds: each is left to any other program with a definition, and withdrawn when another
program begins to define it.
"""

import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Final

from nodeagent.components.cdi.plan_specs import SpecOptions, SpecPlan
from nodeagent.components.cdi.registry import (
    SpecReading,
    describe_conflicts,
    find_conflicts,
    find_foreign_definers,
)
from nodeagent.components.cdi.spec import render_spec_name
from nodeagent.config.schema import Settings
from nodeagent.model.cdi import DriverFiles, SpecContent
from nodeagent.model.errors import NodeagentError
from nodeagent.model.nvidia import VENDOR
from nodeagent.model.runtime import CdiSpecFile, CdiState, RuntimeState
from nodeagent.model.runtimes import RUNTIMES
from nodeagent.model.values import Value
from nodeagent.model.vendor import Vendor
from nodeagent.rules.cdi_names import CHANNEL_KIND, EXTRA_KINDS, list_public_kinds, name_own_kind

CODES: Final = (
    "cdi-conflict",
    "cdi-file-invalid",
    "cdi-device-left-out",
    "cdi-extra-device-missing",
    "cdi-driver-files-missing",
    "cdi-driver-version-differs",
)


class SpecContested(NodeagentError):
    """Another program keeps writing one of the agent's files."""

    def __init__(self, path: str) -> None:
        super().__init__(
            f"{path} is written by another program again and again: stop it, such as a second device plugin"
        )


class SpecChanges(Value, frozen=True):
    """The changes of the agent's own files."""

    write: Mapping[str, bytes] = {}
    remove: tuple[str, ...] = ()


class Layout(Value, frozen=True):
    """How containers come to find the driver's libraries."""

    hook: Path | None = None
    """The program that makes a linker cache in each container; without it libraries lie on the linker's own path."""
    reason: str = ""
    """Why there is no hook."""


def plan_own_paths(locate: Callable[[str], str], vendor: Vendor = VENDOR) -> dict[str, str]:
    """Path to name of each file the agent may write."""
    kinds = (name_own_kind(vendor), *list_public_kinds(vendor), *EXTRA_KINDS.values(), CHANNEL_KIND)
    names = [render_spec_name(kind) for kind in kinds]
    return {locate(name): name for name in names}


def decide_public(
    readings: Sequence[SpecReading], own_paths: Iterable[str], *, wanted: bool, vendor: Vendor = VENDOR
) -> tuple[str, ...]:
    """The public kinds to define: each only without another file's definition."""
    kinds = list_public_kinds(vendor) if wanted else ()
    return tuple(kind for kind in kinds if not find_foreign_definers(readings, kind, own_paths))


def decide_options(
    kinds: tuple[str, ...], layout: Layout, settings: Settings, runtime: RuntimeState | None
) -> SpecOptions:
    """The content to write, for the readers of the files.

    A reader without support for additional groups ignores the whole file, and no container would start. So the runtime
    must be known, and readers of the public kinds, such as the Podman of a long-lived distribution, count as unknown.
    """
    is_sure = settings.cdi.device_groups == "always"
    known = settings.cdi.device_groups == "auto" and runtime is not None and _reads_groups(runtime)
    return SpecOptions(
        kinds=kinds,
        hook=layout.hook,
        groups=is_sure or known,
        public_groups=is_sure,
        containers=settings.containers,
    )


def _reads_groups(runtime: RuntimeState) -> bool:
    record, found = RUNTIMES.get(runtime.kind), re.match(r"v?(\d+)\.(\d+)", runtime.version)
    return record is not None and found is not None and tuple(map(int, found.groups())) >= record.first_with_groups


def decide_changes(
    wanted: Mapping[str, bytes],
    found: Iterable[SpecContent],
    own_paths: Mapping[str, str],
    vendor: Vendor = VENDOR,
) -> SpecChanges:
    """The differences. The device plugin's own kind is never removed: pods may be on their way to its names."""
    there = {own_paths[each.path]: each for each in found if each.path in own_paths}
    kept = render_spec_name(name_own_kind(vendor))
    return SpecChanges(
        write={
            name: content for name, content in wanted.items() if name not in there or there[name].content != content
        },
        remove=tuple(name for name in there if name not in wanted and name != kept),
    )


def renew_files(
    wanted: Mapping[str, bytes],
    found: Iterable[SpecContent],
    own_paths: Mapping[str, str],
    nodes_changed_seconds: float,
) -> dict[str, bytes]:
    """The files to write although their content is right: one of the device nodes is newer.

    Runtimes read the number of a device node once, and keep the number until a file of the directory is written.
    """
    old = {
        own_paths[each.path]
        for each in found
        if each.written_seconds < nodes_changed_seconds and each.path in own_paths
    }
    return {name: content for name, content in wanted.items() if name in old}


def render_state(
    generation: int,
    readings: Iterable[SpecReading],
    own_paths: Iterable[str],
    left_out: tuple[str, ...],
    layout: Layout,
    *,
    shim: str = "",
) -> CdiState:
    """The files of the node, for publication."""
    ours = set(own_paths)
    files = tuple(
        CdiSpecFile(
            path=reading.path,
            kind=reading.kind,
            version=reading.version,
            devices=reading.devices,
            ours=reading.path in ours,
        )
        for reading in readings
        if not reading.problem
    )
    return CdiState(
        generation=generation,
        files=files,
        left_out=left_out,
        hook=str(layout.hook) if layout.hook is not None else "",
        no_hook_reason=layout.reason,
        shim=shim,
    )


def decide_problems(
    readings: Sequence[SpecReading], plan: SpecPlan, files: DriverFiles, in_use: str
) -> dict[str, dict[str, str]]:
    """For each code of `CODES` the details by subject; an empty mapping means all is well.

    `in_use` is the version reported by the running driver.
    """
    missing = not files.libraries and not files.made_up
    return {
        "cdi-conflict": describe_conflicts(find_conflicts(readings)),
        "cdi-file-invalid": {
            reading.path: f"{reading.path}: {reading.problem}" for reading in readings if reading.problem
        },
        "cdi-device-left-out": {each.partition(" ")[0]: each for each in plan.left_out},
        "cdi-extra-device-missing": {path: describe_missing_device(path) for path in plan.missing},
        "cdi-driver-files-missing": {"": "no library of the driver was found below `driver.root`"} if missing else {},
        "cdi-driver-version-differs": {"": differs} if (differs := describe_other_version(in_use, files)) else {},
    }


def describe_missing_device(path: str) -> str:
    """The setting and the path of a device node that the host lacks."""
    return f"containers.extra_devices: {path} is missing on this host, or no device node"


def describe_other_version(in_use: str, files: DriverFiles) -> str:
    """The difference between the driver in use and the libraries found; empty for equal versions."""
    if not in_use or not files.version or in_use == files.version:
        return ""
    return f"the driver in use is {in_use}, the libraries found are those of {files.version}"
