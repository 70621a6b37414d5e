"""The node object in the API server: condition, taint, events, and node requests."""
