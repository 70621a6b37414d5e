"""The containers' use of their fractions, measured once for all readers."""
