"""The node object in the API server: condition, taint, events, and what the cluster wishes of the node."""
