"""The requests of the node's pods, and the schedulers' choices on the pods."""
