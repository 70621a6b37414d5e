"""GPU nodes without GPUs: the ports of the driver and the hardware, played by profiles of real boards."""
