"""Log lines: one line per event, repetitions counted."""
