"""Cuts GPUs into MIG devices as a label, a person or the configuration asks, and reports progress."""
