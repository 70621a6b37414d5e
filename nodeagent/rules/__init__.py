"""Pure decisions shared by several components, so that no two can disagree. No I/O, no async, no bus."""
