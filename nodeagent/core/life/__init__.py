"""The life of components: definition, start, restarts within a budget, staged stop."""
