"""The sources of answers and their printing: for people, as JSON, as YAML, as names."""
