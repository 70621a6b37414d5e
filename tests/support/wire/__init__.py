"""Other ends of a connection: kubelets, callers, and those who mean harm."""
