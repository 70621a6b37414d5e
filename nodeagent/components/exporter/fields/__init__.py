"""The fields of DCGM exporter with a reading of NVML, one file per group."""
