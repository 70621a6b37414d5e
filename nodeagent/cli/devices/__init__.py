"""Devices of other vendors: what the classes of the configuration have, and which classes this host could have."""
