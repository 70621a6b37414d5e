"""The node's GPUs as one snapshot with a generation, and the newest sample of all GPUs."""
