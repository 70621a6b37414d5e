"""Stories of a whole cluster: replicas of the extender, nodes that decide as agents do, and what is late or lost."""
