"""Access to the world outside the process, a folder for each neighbour; translates, and never decides."""
