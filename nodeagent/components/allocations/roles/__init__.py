"""What the records of the journal mean: one file for each role in which something is given out."""
