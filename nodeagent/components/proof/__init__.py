"""Idle-time proving: free GPUs are proven, a single GPU at a time, and left at once for a container."""
