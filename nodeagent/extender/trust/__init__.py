"""Whom the extender believes: the keys that prove its own choices, and the certificates that end."""
