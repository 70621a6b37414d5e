"""The extender's trust: keys that prove its own choices, and certificates that end."""
