"""The files between the agent and the vGPU library in a container: limits, written here, and usage, read here."""
