"""NVIDIA's multi-process service: wanted daemons, limits of their clients, places of their files."""
