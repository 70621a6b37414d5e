"""The proof of a GPU: the work of each stage, the right results, and the verdict by readings, neighbours and floors."""
