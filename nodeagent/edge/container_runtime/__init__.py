"""The container runtime of the node: sockets, processes, configuration files, restarts."""
