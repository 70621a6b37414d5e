"""The schedulers' choices, compared with the GPUs of containers."""
