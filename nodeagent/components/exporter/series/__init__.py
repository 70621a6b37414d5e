"""Memory between samples, from which readings become series."""
