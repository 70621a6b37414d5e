"""nodeagent: a single process per GPU node, in place of a pile of per-node parts."""

__version__ = "0.1.0.dev0"
