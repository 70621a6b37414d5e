"""Faults of GPUs told to the pods that hold the GPUs: an event and a condition on each pod, before the pod is gone."""
