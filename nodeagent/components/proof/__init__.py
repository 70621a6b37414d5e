"""Proofs of free GPUs, at idle times or for a pod that waits: a single GPU at a time, left at once for a container."""
