"""By which door each GPU is given out, and when that may change."""
