"""One part of the agent each: `component.py` waits and tells, every other file decides."""
