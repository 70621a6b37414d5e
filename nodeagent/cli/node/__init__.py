"""The node: status, events, labels, metrics, allocations, its runtime and its CDI files."""
