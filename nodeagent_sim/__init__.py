"""GPU nodes without GPUs: the ports of the driver and the hardware, simulated by profiles of real boards."""
