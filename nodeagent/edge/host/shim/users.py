"""Containers that were created through the runtime shim: they are looked after and ended through it, too.

Owns how that is seen: some container runtimes keep the program's path beside each container, others have told it to the
monitor of each container on its command line. Which does what stands in their records.
"""

import itertools
from collections.abc import Iterator
from pathlib import Path
from typing import Final

from nodeagent.edge.host.errors import HostError
from nodeagent.edge.host.files.pseudo_file import list_names, read_raw_attribute
from nodeagent.edge.host.machine.host_paths import HostPaths
from nodeagent.model.runtimes import RUNTIMES
from nodeagent.model.shim_names import NVIDIA_NAMES

_RUNTIME_FLAGS: Final = frozenset({"-r", "--runtime"})


def count_users(programs: frozenset[str], host: HostPaths, proc_root: Path = Path("/proc")) -> int:
    """How many containers there are that one of these programs, by the host's names, has made."""
    return sum(program in programs for program in (*_list_noted(host), *_list_told(proc_root)))


def count_toolkit_users(ours: frozenset[str], host: HostPaths, proc_root: Path = Path("/proc")) -> int:
    """How many containers a runtime of NVIDIA's toolkit has made, which goes by the names of which some may be ours."""
    made_by = (*_list_noted(host), *_list_told(proc_root))
    return sum(Path(program).name in NVIDIA_NAMES and program not in ours for program in made_by)


def _list_noted(host: HostPaths) -> Iterator[str]:
    for record in RUNTIMES.values():
        for path in itertools.chain.from_iterable(map(host.list_matching, record.notes)):
            try:
                yield (host.read(path) or b"").decode("utf-8", "replace").strip()
            except HostError:  # no note, but something of its name
                continue


def _list_told(proc_root: Path) -> Iterator[str]:
    monitors = {record.monitor for record in RUNTIMES.values() if record.monitor}
    for number in list_names(proc_root):
        if not (number.isascii() and number.isdigit()):
            continue
        arguments = read_raw_attribute(proc_root / number / "cmdline").decode("utf-8", "replace").split("\0")
        if Path(arguments[0]).name not in monitors:
            continue
        yield from (value for flag, value in itertools.pairwise(arguments) if flag in _RUNTIME_FLAGS)
