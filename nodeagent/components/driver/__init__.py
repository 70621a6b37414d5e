"""The state of the driver, and repairs around a driver that fails."""
