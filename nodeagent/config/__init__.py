"""Settings: where they come from, what they may be, and the values that everybody reads."""
