"""The kernel settings that a starting kubelet changes for the whole machine, so that `down` can put them back."""

from collections.abc import Mapping
from pathlib import Path

CHANGED_BY_KUBELET = (
    "vm/overcommit_memory",
    "vm/panic_on_oom",
    "kernel/panic",
    "kernel/panic_on_oops",
    "kernel/keys/root_maxkeys",
    "kernel/keys/root_maxbytes",
)
ROOT = Path("/proc/sys")


def read_sysctls(root: Path = ROOT) -> dict[str, str]:
    """Their present values; one that this kernel does not have is left out."""
    return {name: (root / name).read_text().strip() for name in CHANGED_BY_KUBELET if (root / name).exists()}


def restore_sysctls(values: Mapping[str, str], root: Path = ROOT) -> None:
    """Write back what differs, and only that."""
    for name, value in values.items():
        if (root / name).read_text().strip() != value:
            (root / name).write_text(value)
