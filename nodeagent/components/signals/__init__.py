"""Faults of GPUs told to the pods with the GPUs, and to programs that repair or replace nodes."""
