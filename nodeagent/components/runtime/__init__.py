"""The container runtime: which one it is, and the least that must change for it to hand out GPUs."""
