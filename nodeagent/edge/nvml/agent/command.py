"""The worker's command line and environment."""

import importlib.util
import sys
from collections.abc import Mapping
from pathlib import Path

import nodeagent

_LAUNCH = (
    "import sys; sys.path.extend(sys.argv[1:3]); from nodeagent.edge.nvml.worker.launch import {}; {}(sys.argv[3:])"
)
_READS, _CUTS = "main", "main_partition"

SMALL_ENVIRONMENT = {
    # One arena of the allocator is enough for two threads that rarely allocate: half a megabyte saved.
    "MALLOC_ARENA_MAX": "1",
    # Python itself uses UTF-8 then; the tables of a locale that nobody asks would be 0.2 MB.
    "LC_ALL": "C",
}
"""What keeps the worker's memory small; settings may say otherwise."""


def render_command(root: str, library: str, *, cuts: bool = False) -> list[str]:
    """The worker's command line: an isolated interpreter with two more places for modules.

    `cuts` asks for the worker that changes partitions, in place of the worker that reads.
    """
    entry = _CUTS if cuts else _READS
    binding = importlib.util.find_spec("pynvml")
    assert binding is not None
    assert binding.origin is not None
    places = [str(Path(nodeagent.__file__).parents[1]), str(Path(binding.origin).parent)]
    return [sys.executable, "-I", "-S", "-E", "-c", _LAUNCH.format(entry, entry), *places, root, library]


def render_environment(extra: Mapping[str, str]) -> dict[str, str]:
    """The worker's whole environment, the death signal's variable aside."""
    return {**SMALL_ENVIRONMENT, **extra}
