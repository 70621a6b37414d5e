"""The node's GPUs as one snapshot with a generation, and their newest sample."""
