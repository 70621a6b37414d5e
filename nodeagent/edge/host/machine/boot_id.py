"""The name of this boot: device numbers, holders and kernel log positions are valid within one boot."""

from pathlib import Path

from nodeagent.edge.host.files.atomic_file import read_bounded

_BOOT_ID = "sys/kernel/random/boot_id"


def read_boot_id(proc_root: Path = Path("/proc")) -> str:
    """A UUID that is new after each boot.

    Raises:
        FileUnreadable: /proc has no boot id, as Linux always has unless /proc is not the real one.
    """
    return read_bounded(proc_root / _BOOT_ID, limit_bytes=4096).decode("ascii", "replace").strip()
