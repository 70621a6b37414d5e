"""Takes back what processes of the former vGPU library had, once they have ended: those hold no lock that would say it.

Of a process in another pid namespace the library cannot tell whether it lives; the host can. Refuses to judge where the
processes of containers are not seen, as from a pod without the host's pid namespace.
"""

import os
from collections.abc import Sequence
from pathlib import Path
from typing import Final, NamedTuple

from nodeagent.edge.host.errors import FileNotWritten
from nodeagent.edge.host.files.pseudo_file import list_names, read_raw_attribute
from nodeagent.edge.host.vgpu import layout
from nodeagent.edge.host.vgpu.layout import PROCESS, USAGE_BYTES, USAGE_HEADER

_OWNER_BYTES: Final = 8
"""The first field of a slot."""
_NAMESPACES_FROM: Final = 0xF0000000
"""The kernel numbers its namespaces from here on; processes of a sandbox with a kernel of its own are not seen."""
_START_FIELD: Final = 19
"""Of the line `stat`, counted behind the name."""


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
    """Whether the process shows by a lock that it lives."""

    @property
    def wants_host(self) -> bool:
        """Whether the host alone can tell if its process lives."""
        return not self.is_locked and self.process.start_ticks > 0 and self.namespace >= _NAMESPACES_FROM

    @property
    def process(self) -> Living:
        """The one that holds it."""
        return Living(self.owner >> layout.PID_SHIFT & layout.PID_MASK, self.owner & layout.START_MASK)


def list_held(descriptor: int) -> tuple[Slot, ...]:
    """The slots of a usage file; none in one that its container has cut."""
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
    """All processes of this host; nothing where those of containers are not seen."""
    living, sees_containers = set[Living](), False
    for name in list_names(proc_root):
        if not name.isdecimal():
            continue
        status = read_raw_attribute(proc_root / name / "status")
        stat = read_raw_attribute(proc_root / name / "stat").rpartition(b")")[2].split()
        pids = next((line.split()[1:] for line in status.splitlines() if line.startswith(b"NSpid:")), [])
        if pids and len(stat) > _START_FIELD:
            living.add(Living(int(pids[-1]) & layout.PID_MASK, int(stat[_START_FIELD]) & layout.START_MASK))
            sees_containers = sees_containers or len(pids) > 1
    return frozenset(living) if sees_containers else None


def forget_ended(path: Path, descriptor: int, slots: Sequence[Slot], living: frozenset[Living]) -> int:
    """Have the slots of those that have ended be free, the owner last; how many.

    Where another process of the same namespace lives, they are the library's to take back: two would be at it. Else
    nobody changes such a slot, as the library leaves alone what it cannot judge, and gives out none that has an owner.

    Raises:
        FileNotWritten: it was refused.
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
