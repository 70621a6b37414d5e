"""The usage of parts of GPUs, as a component."""
