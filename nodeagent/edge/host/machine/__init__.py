"""The machine and its kernel: which boot, which firmware, what the log says, who runs the service."""
