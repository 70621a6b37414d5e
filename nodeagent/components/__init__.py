"""One part of the agent each: `component.py` and tasks wait and tell, every other file decides."""
