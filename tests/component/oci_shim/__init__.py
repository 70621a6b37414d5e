"""The runtime shim, built, before a low-level runtime that records how it was called."""
