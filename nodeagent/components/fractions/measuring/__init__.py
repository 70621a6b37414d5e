"""Files with the GPUs' utilization, for containers whose compute is limited."""
