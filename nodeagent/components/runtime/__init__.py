"""The container runtime: its detection, and the least change of configuration for containers to get GPUs."""
