"""Idle-time proving: GPUs that nobody has are proven one at a time, and left at once when somebody gets one."""
