"""What stands round an agent that is measured: a kubelet, an API server, scrapers, a node."""
