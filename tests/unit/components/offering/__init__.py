"""The doors of all GPUs."""
