"""Runs things: bus, supervisor, gates, conditions, children, threads. Knows nothing of GPUs or Kubernetes."""
