"""The commands about GPUs, and their text."""
