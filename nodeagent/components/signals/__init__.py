"""Faults of GPUs told to the pods that hold the GPUs, and to programs that repair or replace nodes."""
