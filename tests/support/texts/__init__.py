"""Texts that are read back and judged, and texts that mean harm."""
