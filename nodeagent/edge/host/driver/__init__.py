"""The driver as it lies on this host: its root, libraries and programs, and whether it works."""
