"""The container runtime of this node: its sockets, its processes, its configuration files, its restart."""
