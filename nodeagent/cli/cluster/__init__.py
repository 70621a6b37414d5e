"""The agents of the whole cluster: which nodes are not ready, shown to people and published as a condition."""
