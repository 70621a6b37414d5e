"""The meaning of the journal's records: a file for each way of giving out."""
