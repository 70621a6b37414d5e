"""The families of the agent's own metrics, by subject."""
