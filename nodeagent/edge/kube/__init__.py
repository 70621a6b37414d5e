"""The API server: one slim client, and the few objects that the agent reads and writes."""
