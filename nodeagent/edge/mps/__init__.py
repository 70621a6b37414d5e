"""The daemons of NVIDIA's multi-process service: their processes, directories and control pipes."""
