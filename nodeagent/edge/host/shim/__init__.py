"""The runtime shim's files: the shim's table, and its behaviour without a table."""
