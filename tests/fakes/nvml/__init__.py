"""A C library with NVML's real ABI, driven from Python through shared memory.

`control.FakeNvml` is the door: it writes what the library answers, while any number of processes have it loaded.
"""
