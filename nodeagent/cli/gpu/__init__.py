"""`nodeagent gpu` and what it shows."""
