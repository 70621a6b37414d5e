"""Does what the cluster asks of this node, and says what became of it: pauses, named configurations, MIG layouts."""
