"""NVIDIA's own nvidia-smi, held against the commands that the agent gives it and the stand-ins that answer them."""
