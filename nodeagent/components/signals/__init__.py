"""Faults of GPUs told to the holders: an event on each pod before the pod is gone, and a file read by the container."""
