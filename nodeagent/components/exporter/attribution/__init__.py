"""The labels of a reading: pod, container, MIG device, each under its label names."""
