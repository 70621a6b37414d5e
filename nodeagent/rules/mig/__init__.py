"""MIG layouts: what is asked for, whether it fits, and by which steps a GPU gets there."""
