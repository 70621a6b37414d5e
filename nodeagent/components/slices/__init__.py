"""Publishes the devices for claims of this node to schedulers, and keeps the slices current."""
