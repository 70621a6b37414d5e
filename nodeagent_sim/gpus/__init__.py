"""The driver and GPUs of a node, simulated by profiles of real boards, with the jobs and containers that use them."""
