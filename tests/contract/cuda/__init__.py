"""The CUDA driver as NVIDIA's library answers, held against the fake and against the vGPU library's table of hooks."""
