"""The commands about GPUs, and how they show them."""
