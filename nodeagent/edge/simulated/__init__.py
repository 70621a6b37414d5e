"""The same ports without hardware and without a cluster."""
