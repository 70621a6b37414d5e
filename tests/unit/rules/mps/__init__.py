"""NVIDIA's multi-process service: limits, daemons, files."""
