"""Upgrades of the driver: the GPUs are emptied, the old modules leave, the new driver comes and is proven."""
