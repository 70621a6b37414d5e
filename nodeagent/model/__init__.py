"""The vocabulary: frozen values shared by components. No I/O, no async, no logging."""
