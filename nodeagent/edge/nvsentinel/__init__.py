"""NVSentinel's platform connector on this node: takes events about faults, over a unix socket."""
