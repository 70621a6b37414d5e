"""Reads the configuration of the parts that this agent takes the place of, and says it in its own words."""
