"""NVML as NVIDIA declares it and as its library answers, held against the worker's structures and against the fake."""
