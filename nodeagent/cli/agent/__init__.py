"""Runs the agent, for real or as a simulation, and looks at what it is set to."""
