"""What containers use of their parts of GPUs: measured once, for everybody who tells it."""
