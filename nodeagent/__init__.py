"""nodeagent: one process per GPU node that does what a pile of per-node parts did."""

__version__ = "0.1.0.dev0"
