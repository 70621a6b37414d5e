"""The command line: parses, asks or runs the agent, prints. Decides nothing about GPUs."""
