"""Limits files in line with the journal: a changed limit reaches the container after all."""
