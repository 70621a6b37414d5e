"""One daemon's life: its GPUs made ready for it, it itself, and all given back."""
