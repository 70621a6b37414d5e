"""nodeagent: one process per GPU node that does the work of a pile of per-node parts."""

__version__ = "0.1.0.dev0"
