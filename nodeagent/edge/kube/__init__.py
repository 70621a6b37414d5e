"""The API server: one client, and the few objects that the agent reads and writes."""
