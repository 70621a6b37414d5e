"""Daemons of NVIDIA's multi-process service: started, looked after, and ended once unused."""
