"""Settings: the sources, the declarations, and the values read by all components."""
