"""Leaves the node as it was before the agent came."""
