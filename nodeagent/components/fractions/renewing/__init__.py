"""Limits files that say something else than the journal: what was changed reaches its container after all."""
