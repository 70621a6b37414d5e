"""The driver on this host: its root, libraries and programs, and whether the driver works."""
