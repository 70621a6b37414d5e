"""Containers created through the runtime shim: such containers are managed and ended through the shim, too.

Owns the two sources: some container runtimes keep the program's path beside each container, others pass the path to
each container's monitor on the command line. The records of container runtimes say which.
"""

import itertools
from collections.abc import Iterator
from pathlib import Path
from typing import Final

from nodeagent.edge.host.errors import HostError
from nodeagent.edge.host.files.pseudo_file import list_processes, read_raw_attribute
from nodeagent.edge.host.machine.host_paths import HostPaths
from nodeagent.model.runtimes import RUNTIMES
from nodeagent.model.shim_names import RUNTIME_NAMES

_RUNTIME_FLAGS: Final = frozenset({"-r", "--runtime"})


def count_users(programs: frozenset[str], host: HostPaths, proc_root: Path = Path("/proc")) -> int:
    """The number of containers created by one of the programs, given by the host's names."""
    return sum(program in programs for program in (*_list_noted(host), *_list_told(proc_root)))


def count_toolkit_users(ours: frozenset[str], host: HostPaths, proc_root: Path = Path("/proc")) -> int:
    """The number of containers created by a runtime of NVIDIA's toolkit, rather than by ours under NVIDIA's names."""
    made_by = (*_list_noted(host), *_list_told(proc_root))
    return sum(Path(program).name in RUNTIME_NAMES and program not in ours for program in made_by)


def _list_noted(host: HostPaths) -> Iterator[str]:
    for record in RUNTIMES.values():
        for path in itertools.chain.from_iterable(map(host.list_matching, record.notes)):
            try:
                yield (host.read(path) or b"").decode("utf-8", "replace").strip()
            except HostError:  # no note, but another kind of file with a note's name
                continue


def _list_told(proc_root: Path) -> Iterator[str]:
    monitors = {record.monitor for record in RUNTIMES.values() if record.monitor}
    for process in list_processes(proc_root):
        arguments = read_raw_attribute(process / "cmdline").decode("utf-8", "replace").split("\0")
        if Path(arguments[0]).name not in monitors:
            continue
        yield from (value for flag, value in itertools.pairwise(arguments) if flag in _RUNTIME_FLAGS)
