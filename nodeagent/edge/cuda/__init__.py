"""The GPUs behind the CUDA driver interface: a child process computes, copies and compares, and can be killed."""
