"""Where answers come from and how they are printed: for people, as JSON, as YAML, as names."""
