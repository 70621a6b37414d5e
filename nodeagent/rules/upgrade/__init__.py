"""Upgrades of the driver: when one begins, which step follows, and who is paused meanwhile."""
