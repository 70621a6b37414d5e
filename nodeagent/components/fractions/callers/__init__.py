"""The starting container, by the kubelet's records and the API server."""
