"""Translates the configuration of the products that the agent replaces into the agent's settings."""
