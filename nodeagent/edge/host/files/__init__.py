"""The agent's own files: written whole, sealed, locked, appended to durably."""
