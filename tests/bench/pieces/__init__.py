"""Measures of one piece each, by itself or as far as it reaches."""
