"""Files that are the agent's own: written whole, sealed, locked, appended to durably."""
