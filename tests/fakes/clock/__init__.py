"""Clocks that are stepped, and that run faster than the world's, under processes that know nothing of it."""
