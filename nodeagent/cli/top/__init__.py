"""`nodeagent top`: rows, keys, screens."""
