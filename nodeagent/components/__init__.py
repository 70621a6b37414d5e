"""One part of the agent each: `component.py` and `…_task.py` wait and publish, every other file decides."""
