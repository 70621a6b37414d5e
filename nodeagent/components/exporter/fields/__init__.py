"""The fields of DCGM exporter that NVML can give, one file per group."""
