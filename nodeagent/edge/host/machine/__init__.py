"""The machine and its kernel: boot, firmware, kernel log, and the manager of the service."""
