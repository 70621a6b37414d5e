"""Metrics in the Prometheus text format, by the agent's own renderer."""
