"""The API server: a client, and the few objects that the agent reads and writes."""
