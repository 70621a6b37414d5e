"""Faults of GPUs told to the pods that hold the GPUs: an event on each pod, before the pod is gone."""
