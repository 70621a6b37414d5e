"""The agent's own metrics: a family each, by what they are about."""
