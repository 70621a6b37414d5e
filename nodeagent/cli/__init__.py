"""The command line: parses, asks or runs the agent, prints. Decides nothing about GPUs.

A function that cannot do its work raises a `CommandFailed`: its text and exit code end the command.
"""
