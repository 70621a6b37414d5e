"""Runs the agent, for real or as a simulation, and shows the agent's settings."""
