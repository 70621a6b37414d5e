"""Frees the slots of ended processes of the former vGPU library, which held no locks that would show their end.

Of a process in another pid namespace the library cannot tell whether the process lives; the host can. Refuses to judge
where the processes of containers are invisible, as from a pod without the host's pid namespace.
"""

import os
from collections.abc import Sequence
from pathlib import Path
from typing import Final, NamedTuple

from nodeagent.edge.host.errors import FileNotWritten
from nodeagent.edge.host.files.pseudo_file import list_processes, read_raw_attribute
from nodeagent.edge.host.vgpu import layout
from nodeagent.edge.host.vgpu.layout import PROCESS, USAGE_BYTES, USAGE_HEADER

_OWNER_BYTES: Final = 8
"""The first field of a slot."""
_NAMESPACES_FROM: Final = 0xF0000000
"""The least namespace number of the kernel; processes of a sandbox with a kernel of its own are invisible."""
_START_FIELD: Final = 19
"""Field of the line `stat`, counted after the name."""


class Living(NamedTuple):
    """A process by its pid in its own namespace, and its start in clock ticks since the boot."""

    pid: int
    start_ticks: int


class Slot(NamedTuple):
    """A slot of a usage file that a process holds, or held when it ended."""

    number: int
    owner: int
    namespace: int
    is_locked: bool
    """Whether a lock shows that the process lives."""

    @property
    def wants_host(self) -> bool:
        """Whether the host alone can tell if the process of the slot lives."""
        return not self.is_locked and self.process.start_ticks > 0 and self.namespace >= _NAMESPACES_FROM

    @property
    def process(self) -> Living:
        """The process that holds the slot."""
        return Living(self.owner >> layout.PID_SHIFT & layout.PID_MASK, self.owner & layout.START_MASK)


def list_held(descriptor: int) -> tuple[Slot, ...]:
    """The held slots of a usage file; empty for a file that the container has truncated."""
    if os.fstat(descriptor).st_size != USAGE_BYTES:
        return ()
    high_water = USAGE_HEADER.unpack(os.pread(descriptor, USAGE_HEADER.size, 0))["high_water"]
    found = list[Slot]()
    for number in range(min(high_water, layout.PROCESSES)):
        fields = PROCESS.unpack(os.pread(descriptor, PROCESS.size, USAGE_HEADER.size + number * PROCESS.size))
        if fields["owner"] >> 62 == layout.OWNER_HELD:
            found.append(Slot(number, fields["owner"], fields["pid_namespace"], fields["locked_by"] == fields["owner"]))
    return tuple(found)


def read_living(proc_root: Path = Path("/proc")) -> frozenset[Living] | None:
    """All processes of this host; `None` where the processes of containers are invisible."""
    living, sees_containers = set[Living](), False
    for process in list_processes(proc_root):
        status = read_raw_attribute(process / "status")
        stat = read_raw_attribute(process / "stat").rpartition(b")")[2].split()
        pids = next((line.split()[1:] for line in status.splitlines() if line.startswith(b"NSpid:")), [])
        if pids and len(stat) > _START_FIELD:
            living.add(Living(int(pids[-1]) & layout.PID_MASK, int(stat[_START_FIELD]) & layout.START_MASK))
            sees_containers = sees_containers or len(pids) > 1
    return frozenset(living) if sees_containers else None


def forget_ended(path: Path, descriptor: int, slots: Sequence[Slot], living: frozenset[Living]) -> int:
    """Free the slots of ended processes, the owner field last; the number of freed slots.

    Where another process of the same namespace lives, the library frees such slots: two at once would collide.
    Elsewhere the slots have no other writer: the library neither judges such slots nor gives them out.
    """
    inhabited = {slot.namespace for slot in slots if slot.process in living}
    ended = [slot for slot in slots if slot.wants_host and slot.namespace not in inhabited]
    try:
        for slot in ended:
            place = USAGE_HEADER.size + slot.number * PROCESS.size
            os.pwrite(descriptor, bytes(PROCESS.size - _OWNER_BYTES), place + _OWNER_BYTES)
            os.pwrite(descriptor, bytes(_OWNER_BYTES), place)
    except OSError as error:
        raise FileNotWritten(path, "take back what ended processes had", error, replaced=False) from error
    return len(ended)
