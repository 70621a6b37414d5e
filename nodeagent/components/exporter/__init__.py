"""Metrics in the Prometheus text format, by a renderer of our own."""
