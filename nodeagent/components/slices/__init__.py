"""Tells schedulers what devices claims can have on this node, and keeps it told."""
