"""Files and directories for tests."""
