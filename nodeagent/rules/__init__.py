"""Pure decisions that several parts share, so that they cannot disagree. No I/O, no async, no bus."""
