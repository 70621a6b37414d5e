"""Bounds the usage files of fractions, and reports containers that made them larger."""
