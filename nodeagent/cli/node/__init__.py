"""What the node is and has: status, events, labels, metrics, allocations, its runtime and its CDI files."""
