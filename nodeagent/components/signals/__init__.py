"""Faults of GPUs told to the pods and containers with the GPUs, and to programs that repair or replace nodes."""
