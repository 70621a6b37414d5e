"""Devices of other vendors: the devices of the configured classes, and the classes possible on this host."""
