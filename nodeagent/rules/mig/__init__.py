"""MIG layouts: the wanted partitions, whether a GPU can have them, and the steps of a GPU to get there."""
