"""Fault sessions of GPUs that a repair could mend; in mode observe the agent says what it would do, and does not."""
