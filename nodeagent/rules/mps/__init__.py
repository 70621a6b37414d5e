"""NVIDIA's multi-process service: which daemons there are to be, what their clients may use, where their files lie."""
