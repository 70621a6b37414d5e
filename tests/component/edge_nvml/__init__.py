"""The edge to NVML, through real pynvml and, where it matters, a real worker process, on the fake library."""
