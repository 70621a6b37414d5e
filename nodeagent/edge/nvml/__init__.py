"""The GPUs behind NVML: a small child process makes every library call, the agent asks by deadline."""
