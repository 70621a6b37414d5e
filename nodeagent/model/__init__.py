"""The vocabulary: frozen values that two parts share. No I/O, no async, no logging."""
