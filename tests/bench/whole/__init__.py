"""Measures of the whole agent, or of programs in its place."""
