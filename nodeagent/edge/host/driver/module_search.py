"""The driver's kernel module on this host: built for which kernels, and the kernel log's last word on the module.

Owns the places of kernels' tables, of DKMS and of Secure Boot's state, and the words of the kernel and of the module.
Refuses to judge, and to read anything of this while the driver works: a kernel's table has thousands of lines.
Files of the kernel that the host hides, as a strict systemd unit does, are unknown, not missing.
"""

import re
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Final

from nodeagent.edge.host.driver.roots import DriverRoots, follow_in_root
from nodeagent.edge.host.errors import KernelLogUnavailable
from nodeagent.edge.host.files.pseudo_file import list_names, read_attribute, read_raw_attribute
from nodeagent.edge.host.machine.kmsg import KernelLog
from nodeagent.model.driver import ModuleRefusal, ModuleSearch, RefusalKind

_MODULES: Final = "lib/modules"
_TABLE: Final = "modules.dep"
_TABLE_LIMIT_BYTES: Final = 8 << 20
_DKMS: Final = "var/lib/dkms"
_SECURE_BOOT: Final = "firmware/efi/efivars/SecureBoot-8be4df61-93ca-11d2-aa0d-00e098032b8c"
_VARIABLE_BYTES: Final = 5
"""Four bytes of attributes, and the state."""
_BATCHES: Final = 1000
"""Of the kernel log: many times of what its ring can hold, so that a flood does not hold the reader."""
_LINE_LIMIT: Final = 300

# Debian's files are called after the driver's branch; in all of them the module is `nvidia`.
_FILE: Final = re.compile(
    r"^(\S*/nvidia(?:-(?:current|tesla|legacy)(?:-(?!uvm|drm|modeset|peermem)[a-z0-9.]+?)*)?\.ko(?:\.[a-z0-9]+)?):",
    re.MULTILINE,
)
_SOURCE: Final = re.compile(r"nvidia(?:-(?!fs|peer).*)?")

_LOADED: Final = re.compile(r"NVRM: loading NVIDIA")
_REFUSALS: Final = (
    (
        RefusalKind.SIGNATURE,
        re.compile(
            # The name came with one kernel and went with the next.
            r"^(?:nvidia[\w-]*: )?(?:Lockdown: )?[Ll]oading of (?:unsigned module|module with un\w+ \w+) is rejected"
            r"|^Lockdown: \S+: unsigned module loading is restricted"
        ),
    ),
    (
        RefusalKind.OTHER_KERNEL,
        re.compile(r"^nvidia: (?:version magic '|disagrees about version of symbol |Unknown symbol )"),
    ),
    (RefusalKind.CLAIMED, re.compile(r"NVRM: The NVIDIA probe routine was not called for ")),
    (RefusalKind.OPEN_NEEDED, re.compile(r"NVRM: installed in this system requires use of the NVIDIA open kernel")),
    (RefusalKind.OPEN_UNFIT, re.compile(r"NVRM: installed in this system is not supported by open\b")),
    (RefusalKind.UNKNOWN_GPU, re.compile(r"NVRM: installed in this system is not supported by ")),
    (RefusalKind.NO_ADDRESSES, re.compile(r"NVRM: This PCI I/O region assigned to your NVIDIA device is invalid")),
)
"""The first that matches counts."""


def read_module_search(
    roots: DriverRoots, *, proc_root: Path, sys_root: Path, kernel_log: Path | None = None
) -> ModuleSearch:
    """Search the host; files only where the host's own driver is meant, since a driver container brings its own."""
    log = ModuleSearch(
        secure_boot=_read_secure_boot(sys_root),
        refusal=find_refusal(_read_log(kernel_log)) if kernel_log is not None else None,
    )
    kernel = read_attribute(proc_root / "sys/kernel/osrelease")
    modules = follow_in_root(roots.host, _MODULES)
    if not roots.is_host_driver or not kernel or modules is None or not (modules / kernel).is_dir():
        return log
    tables = {name: modules / name / _TABLE for name in list_names(modules)}
    return ModuleSearch(
        kernel=kernel,
        file=_find_module(tables[kernel]),
        table_time=_read_time(tables[kernel]),
        other_kernels=tuple(name for name, table in tables.items() if name != kernel and _find_module(table)),
        dkms=tuple(_list_sources(roots.host / _DKMS)),
        headers=_has_headers(roots.host, kernel),
        secure_boot=log.secure_boot,
        refusal=log.refusal,
    )


def find_refusal(lines: Iterable[str]) -> ModuleRefusal | None:
    """The last refusal after the last time that the module was loaded."""
    last: ModuleRefusal | None = None
    for line in lines:
        if _LOADED.search(line):
            last = None
        elif (refusal := _parse_refusal(line)) is not None:
            last = refusal
    return last


def _parse_refusal(line: str) -> ModuleRefusal | None:
    for kind, pattern in _REFUSALS:
        if pattern.search(line):
            return ModuleRefusal(kind=kind, line=" ".join(line.split())[:_LINE_LIMIT])
    return None


def _read_log(path: Path) -> Iterator[str]:
    """The kernel's records from the oldest on; none where the log is not for this process."""
    try:
        with KernelLog(path) as log:
            for _ in range(_BATCHES):
                batch = log.read_nowait()
                if batch is None:
                    return
                yield from (record.text for record in batch)
    except KernelLogUnavailable:
        # The health component says so; without the log the files have to do.
        return


def _read_secure_boot(sys_root: Path) -> bool | None:
    content = read_raw_attribute(sys_root / _SECURE_BOOT)
    return content[-1] == 1 if len(content) == _VARIABLE_BYTES else None


def _find_module(table: Path) -> str:
    found = _FILE.search(read_attribute(table, limit_bytes=_TABLE_LIMIT_BYTES))
    return found[1] if found else ""


def _read_time(table: Path) -> int:
    try:
        return table.stat().st_mtime_ns
    except OSError:
        return 0


def _list_sources(tree: Path) -> Iterator[str]:
    for name in list_names(tree):
        if _SOURCE.fullmatch(name):
            yield from (
                f"{name}/{version}"
                for version in list_names(tree / name)
                if "source" in list_names(tree / name / version)
            )


def _has_headers(host: Path, kernel: str) -> bool:
    # The link is there without the package that its target belongs to.
    place = follow_in_root(host, f"{_MODULES}/{kernel}/build")
    return place is not None and place.is_dir()
