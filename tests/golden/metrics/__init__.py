"""Whole expositions; `python -m tests.generate` writes them anew, and the difference is what to review."""
