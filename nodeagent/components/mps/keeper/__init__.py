"""The life of a daemon: GPUs made ready, the daemon run, and GPUs given back."""
