"""The agents of a whole cluster: DaemonSets, pods and nodes, and the condition that tells of them."""
