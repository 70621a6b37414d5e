"""What containers that are held to their part of compute are told of how busy their GPUs are."""
