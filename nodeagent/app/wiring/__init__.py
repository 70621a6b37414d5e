"""Wiring by side of the node: builds the components of a side with their edges."""
