"""The runtime shim's files: the table it looks things up in, and what it does without one."""
